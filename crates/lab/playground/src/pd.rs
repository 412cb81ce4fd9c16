//! `pdpb.PD` and `keyspacepb.Keyspace` of a cluster with one member (`reference/pd-protocol.md`).

mod gc;
pub(crate) mod http;
mod keyspaces;
mod regions;
mod service;

use std::sync::Arc;

use tidegate_core::{ClusterId, Ts};
use tidegate_proto::pdpb::{self, ErrorType, Member, RequestHeader, ResponseHeader, Timestamp};
use tonic::Status;

use crate::region_proto::VERSION;
use crate::server::Upstream;
use crate::world::{Now, World};

/// Any number but zero, which the Java client reads as "no leader".
const MEMBER_ID: u64 = 1;
const MEMBER_NAME: &str = "playground";
/// A batch of timestamps lies within one millisecond.
const TSO_BATCH_MAX: u32 = (1 << 18) - 1;

/// PD's services.
#[derive(Clone)]
pub(crate) struct PdService {
    upstream: Arc<Upstream>,
    /// With scheme; what clients dial after they asked for the members.
    url: String,
    cluster_id: ClusterId,
}

/// A business error: it travels in the response's header.
#[derive(Debug)]
pub(crate) struct PdError {
    kind: ErrorType,
    message: String,
}

impl PdError {
    fn unknown(message: impl ToString) -> Self {
        Self { kind: ErrorType::Unknown, message: message.to_string() }
    }
}

impl PdService {
    pub(crate) fn new(upstream: Arc<Upstream>, url: &str) -> Self {
        let cluster_id = upstream.step(|world, _| world.cluster_id);
        Self { upstream, url: url.to_owned(), cluster_id }
    }

    /// A header without error. It must not hold one of type OK: clients take its presence for failure.
    fn header(&self) -> Option<ResponseHeader> {
        Some(ResponseHeader { cluster_id: self.cluster_id.get(), error: None })
    }

    fn error_header(&self, error: PdError) -> Option<ResponseHeader> {
        let error = pdpb::Error { r#type: error.kind.into(), message: error.message };
        Some(ResponseHeader { cluster_id: self.cluster_id.get(), error: Some(error) })
    }

    fn check(&self, header: Option<&RequestHeader>) -> Result<(), Status> {
        let (mine, claimed) = (self.cluster_id.get(), header.map_or(0, |header| header.cluster_id));
        if mine == claimed {
            return Ok(());
        }
        let message = format!("mismatch cluster id, need {mine} but got {claimed}");
        Err(Status::failed_precondition(message))
    }

    /// Runs a handler as one step of the world, if the request means this cluster.
    fn step<R>(
        &self,
        header: Option<&RequestHeader>,
        step: impl FnOnce(&mut World, Now) -> R,
    ) -> Result<R, Status> {
        self.check(header)?;
        Ok(self.upstream.step(step))
    }

    /// Splits an outcome into a header and what the response holds on success.
    fn settle<R>(&self, outcome: Result<R, PdError>) -> (Option<ResponseHeader>, Option<R>) {
        match outcome {
            Ok(answer) => (self.header(), Some(answer)),
            Err(error) => (self.error_header(error), None),
        }
    }

    fn member(&self) -> Member {
        Member {
            name: MEMBER_NAME.to_owned(),
            member_id: MEMBER_ID,
            peer_urls: vec![self.url.clone()],
            client_urls: vec![self.url.clone()],
            binary_version: format!("v{VERSION}"),
            ..Default::default()
        }
    }

    fn tso(&self, request: &pdpb::TsoRequest) -> Result<pdpb::TsoResponse, Status> {
        self.check(request.header.as_ref())?;
        let count = request.count;
        if !(1..=TSO_BATCH_MAX).contains(&count) {
            return Err(Status::unknown(format!("tso count must be 1 to {TSO_BATCH_MAX}, got {count}")));
        }
        let ts = self.upstream.step(|world, now| world.timestamp(now, u64::from(count)));
        Ok(pdpb::TsoResponse { header: self.header(), count, timestamp: Some(timestamp_proto(ts)) })
    }
}

fn timestamp_proto(ts: Ts) -> Timestamp {
    Timestamp {
        physical: ts.physical_ms().cast_signed(),
        logical: ts.logical().cast_signed(),
        suffix_bits: 0,
    }
}
