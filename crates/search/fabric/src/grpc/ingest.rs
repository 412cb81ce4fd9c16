//! Where changes enter.

use std::sync::Arc;

use prost::Message;
use tidegate_contract::error::{Breach, SfErrorCode};
use tidegate_proto::searchfabric::v1::ingest_gateway_service_server::IngestGatewayService;
use tidegate_proto::searchfabric::v1::{
    CollectionRef, GetStreamPositionsRequest, GetStreamPositionsResponse, ModalityWatermark, MutationAck,
    MutationBatch, MutationFailure, MutationSuccess, PacingHint, StreamIdentity, StreamPosition,
    mutation_ack,
};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::prepare::prepare;
use crate::catalog::Collection;
use crate::engine::{Command, Engine};
use crate::ingest::{Partition, Refusal};
use crate::visibility::modalities;

/// Answers of one stream that may be outstanding. A producer with many partitions keeps a few batches of each
/// in flight; the bytes of all streams together are limited elsewhere.
const OUTSTANDING_MAX: usize = 256;
/// Unanswered batches of one partition that a producer should not go beyond: enough to hide one group commit.
const IN_FLIGHT_HINT: u32 = 16;

/// The service.
pub(super) struct IngestGateway {
    engine: Arc<Engine>,
    stop: CancellationToken,
}

/// An answer that is on its way, with what it repeats from its question.
struct Outstanding {
    context: Context,
    outcome: Outcome,
}

struct Context {
    collection: Option<CollectionRef>,
    batch_id: String,
    stream_identity: Option<StreamIdentity>,
    fingerprint: String,
}

enum Outcome {
    Refused(Box<Refusal>),
    Waiting(oneshot::Receiver<Result<MutationSuccess, Refusal>>),
}

impl IngestGateway {
    pub(super) fn new(engine: Arc<Engine>, stop: CancellationToken) -> Self {
        Self { engine, stop }
    }
}

type Acks = std::pin::Pin<Box<dyn Stream<Item = Result<MutationAck, Status>> + Send>>;

#[tonic::async_trait]
impl IngestGatewayService for IngestGateway {
    type StreamMutationsStream = Acks;

    async fn stream_mutations(
        &self,
        request: Request<Streaming<MutationBatch>>,
    ) -> Result<Response<Acks>, Status> {
        let (outstanding, answers) = mpsc::channel(OUTSTANDING_MAX);
        let (engine, stop) = (self.engine.clone(), self.stop.clone());
        tokio::spawn(async move {
            let work = receive(&engine, request.into_inner(), &outstanding);
            tokio::select! {
                () = work => {}
                () = stop.cancelled() => {}
            }
        });
        let engine = self.engine.clone();
        let acks = ReceiverStream::new(answers).then(move |outstanding| {
            let engine = engine.clone();
            async move { Ok(answer(&engine, outstanding).await) }
        });
        Ok(Response::new(Box::pin(acks)))
    }

    async fn get_stream_positions(
        &self,
        request: Request<GetStreamPositionsRequest>,
    ) -> Result<Response<GetStreamPositionsResponse>, Status> {
        let wanted = request.into_inner().collection.unwrap_or_default();
        let catalog = self.engine.shared.catalog();
        let here = catalog.all().filter(|collection| {
            let reference = &collection.reference;
            reference.namespace == wanted.namespace
                && (wanted.collection_id.is_empty() || reference.collection_id == wanted.collection_id)
        });
        let positions = here.flat_map(|collection| {
            collection.partitions.values().map(|partition| position(collection, partition))
        });
        Ok(Response::new(GetStreamPositionsResponse { positions: positions.collect() }))
    }
}

fn position(collection: &Collection, partition: &Partition) -> StreamPosition {
    let watermarks = modalities(collection).into_iter().map(|modality| ModalityWatermark {
        modality: modality.into(),
        applied_ts: partition.applied(modality).get(),
    });
    StreamPosition {
        collection: Some(collection.reference.clone()),
        acked_cursor: Some(partition.cursor()),
        acked_resolved_ts: partition.resolved.get(),
        applied_watermarks: watermarks.collect(),
        retired: partition.retired.is_some(),
    }
}

/// Takes batches in until the producer ends or somebody is gone. Reading stops while too much is under way.
async fn receive(
    engine: &Engine,
    mut batches: Streaming<MutationBatch>,
    outstanding: &mpsc::Sender<Outstanding>,
) {
    loop {
        let batch = match batches.message().await {
            Ok(Some(batch)) => batch,
            Ok(None) => return,
            Err(status) => {
                tracing::debug!(code = ?status.code(), "a mutation stream broke off");
                return;
            }
        };
        let context = Context {
            collection: batch.collection.clone(),
            batch_id: batch.batch_id.clone(),
            stream_identity: batch.stream_identity.clone(),
            fingerprint: batch.batch_fingerprint.clone(),
        };
        let outcome = submit(engine, batch).await;
        if outstanding.send(Outstanding { context, outcome }).await.is_err() {
            return;
        }
    }
}

async fn submit(engine: &Engine, batch: MutationBatch) -> Outcome {
    let shared = &engine.shared;
    let unavailable = || Outcome::Refused(Box::new(unavailable().into()));
    let permits = shared.permits(batch.encoded_len());
    let Ok(permit) = shared.in_flight.clone().acquire_many_owned(permits).await else {
        return unavailable();
    };
    let (uid, batch) = match prepare(batch, &shared.catalog()) {
        Ok(prepared) => prepared,
        Err(breach) => return Outcome::Refused(Box::new(breach.into())),
    };
    let (reply, waiting) = oneshot::channel();
    match engine.commands.send(Command::Batch { uid, batch, reply, permit }).await {
        Ok(()) => Outcome::Waiting(waiting),
        Err(_) => unavailable(),
    }
}

fn unavailable() -> Breach {
    Breach::new(SfErrorCode::SfUnavailable, "", "the fabric is stopping")
}

async fn answer(engine: &Engine, outstanding: Outstanding) -> MutationAck {
    let Outstanding { context, outcome } = outstanding;
    let result = match outcome {
        Outcome::Refused(refusal) => Err(*refusal),
        Outcome::Waiting(waiting) => waiting.await.unwrap_or_else(|_| Err(gone(engine).into())),
    };
    let outcome = match result {
        Ok(success) => mutation_ack::Outcome::Success(success),
        Err(refusal) => mutation_ack::Outcome::Failure(failure(engine, &context, refusal)),
    };
    MutationAck {
        collection: context.collection,
        batch_id: context.batch_id,
        stream_identity: context.stream_identity,
        batch_fingerprint: context.fingerprint,
        outcome: Some(outcome),
        pacing: Some(PacingHint { delay_ms: 0, in_flight_batches_max: IN_FLIGHT_HINT }),
    }
}

/// Why a batch has no answer: its group failed, or the fabric stops.
fn gone(engine: &Engine) -> Breach {
    match engine.shared.poisoned() {
        Some(_) => crate::engine::poisoned(),
        None => unavailable(),
    }
}

/// A refusal with everything a producer needs to go on.
fn failure(engine: &Engine, context: &Context, refusal: Refusal) -> MutationFailure {
    let catalog = engine.shared.catalog();
    let collection = context.collection.as_ref().and_then(|reference| catalog.find(reference));
    let name = context.stream_identity.as_ref().map(|stream| stream.source_partition.as_str());
    let partition = collection.zip(name).and_then(|(collection, name)| collection.partitions.get(name));
    let token = collection.and_then(|collection| collection.current()).map(|g| g.token().to_owned());
    MutationFailure {
        error: Some(refusal.breach.to_proto()),
        restart_cursor: refusal
            .restart
            .map(|at| *at)
            .or_else(|| partition.map(|partition| partition.cursor())),
        invalidated_at_commit_ts: refusal.invalidated_at.map(|ts| ts.get()),
        active_schema_generation_token: token.unwrap_or_default(),
        current_source_epoch: partition.map_or(refusal.epoch, |partition| partition.epoch.max(refusal.epoch)),
    }
}
