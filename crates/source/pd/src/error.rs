//! What can go wrong with PD.

use std::borrow::Cow;

use tidegate_core::{ClusterId, Diagnostic, ErrorClass, StoreId, Ts};

/// An error of the PD client.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PdError {
    /// The options name no endpoint.
    #[error("no PD endpoint is given")]
    NoEndpoint,
    /// An endpoint is not of the form `host:port` or `http://host:port`.
    #[error("PD endpoint {endpoint:?} is not a valid address: {detail}")]
    InvalidEndpoint {
        /// The endpoint as given.
        endpoint: String,
        /// What is wrong with it.
        detail: String,
    },
    /// No endpoint answered.
    #[error("no PD endpoint answered: {detail}")]
    Unreachable {
        /// Each endpoint with what happened to it.
        detail: String,
    },
    /// Members of different clusters answered, or the cluster is not the expected one.
    #[error("PD at {endpoint} belongs to cluster {actual}, expected cluster {expected}")]
    ClusterMismatch {
        /// Who answered.
        endpoint: String,
        /// The cluster this client is bound to.
        expected: ClusterId,
        /// The cluster that answered.
        actual: ClusterId,
    },
    /// Members answered, but none is the leader now.
    #[error("PD has no leader at the moment")]
    NoLeader,
    /// The cluster was never bootstrapped: there is no store yet.
    #[error("the cluster is not bootstrapped: {message}")]
    NotBootstrapped {
        /// PD's own words.
        message: String,
    },
    /// A call got no answer in time.
    #[error("PD did not answer {call} within {timeout_ms} ms")]
    Timeout {
        /// The call.
        call: &'static str,
        /// How long was waited.
        timeout_ms: u64,
    },
    /// A call failed with a gRPC status.
    #[error("PD call {call} failed: {code}: {message}")]
    Rpc {
        /// The call.
        call: &'static str,
        /// The gRPC code.
        code: tonic::Code,
        /// The status text.
        message: String,
    },
    /// PD understood the call and refused it (`header.error`).
    #[error("PD refused {call}: {kind}: {message}")]
    Refused {
        /// The call.
        call: &'static str,
        /// The error type's name in PD's protocol.
        kind: &'static str,
        /// PD's own words.
        message: String,
    },
    /// An answer lacks something PD's protocol promises.
    #[error("PD answered {call} with something unusable: {detail}")]
    Malformed {
        /// The call.
        call: &'static str,
        /// What was missing or impossible.
        detail: String,
    },
    /// The store does not exist any more.
    #[error("store {store_id} is gone")]
    StoreGone {
        /// The store asked for.
        store_id: StoreId,
    },
    /// There is no such keyspace.
    #[error("keyspace {name:?} does not exist")]
    KeyspaceNotFound {
        /// The name asked for.
        name: String,
    },
    /// GC has already passed the timestamp that was to be protected.
    #[error("cannot hold GC at {ts}: the safe point is already {safe_point}")]
    BehindSafePoint {
        /// The timestamp to protect.
        ts: Ts,
        /// The transaction safe point.
        safe_point: Ts,
    },
    /// The client was shut down.
    #[error("the PD client is closed")]
    Closed,
}

impl PdError {
    /// Whether the same call may succeed if repeated after a pause.
    pub fn is_retryable(&self) -> bool {
        matches!(self.class(), ErrorClass::Retry | ErrorClass::Wait)
    }
}

impl Diagnostic for PdError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoEndpoint | Self::InvalidEndpoint { .. } => "TG-PD-001",
            Self::Unreachable { .. } | Self::Timeout { .. } => "TG-PD-002",
            Self::ClusterMismatch { .. } => "TG-PD-003",
            Self::NoLeader => "TG-PD-004",
            Self::NotBootstrapped { .. } => "TG-PD-005",
            Self::Rpc { .. } => "TG-PD-006",
            Self::Refused { .. } => "TG-PD-007",
            Self::Malformed { .. } => "TG-PD-008",
            Self::StoreGone { .. } => "TG-PD-009",
            Self::KeyspaceNotFound { .. } => "TG-PD-010",
            Self::BehindSafePoint { .. } => "TG-PD-011",
            Self::Closed => "TG-PD-012",
        }
    }

    fn class(&self) -> ErrorClass {
        use tonic::Code;
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::NoLeader => ErrorClass::Retry,
            Self::NotBootstrapped { .. } => ErrorClass::Wait,
            Self::Rpc { code, .. } => match code {
                Code::Unimplemented
                | Code::InvalidArgument
                | Code::FailedPrecondition
                | Code::PermissionDenied
                | Code::Unauthenticated => ErrorClass::Operator,
                _ => ErrorClass::Retry,
            },
            Self::Refused { .. } | Self::StoreGone { .. } => ErrorClass::Retry,
            Self::NoEndpoint
            | Self::InvalidEndpoint { .. }
            | Self::ClusterMismatch { .. }
            | Self::KeyspaceNotFound { .. }
            | Self::BehindSafePoint { .. } => ErrorClass::Operator,
            Self::Malformed { .. } => ErrorClass::Corrupt,
            Self::Closed => ErrorClass::Bug,
        }
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            Self::NoEndpoint | Self::InvalidEndpoint { .. } => {
                "give PD's client address, for example 127.0.0.1:2379"
            }
            Self::Unreachable { .. } | Self::Timeout { .. } => {
                "check that PD runs at this address and that no firewall stands between"
            }
            Self::ClusterMismatch { .. } => "all endpoints must belong to one cluster; remove the stranger",
            Self::NoLeader => "wait for PD's election; if it lasts, look at the PD members' logs",
            Self::NotBootstrapped { .. } => "start at least one TiKV store",
            Self::KeyspaceNotFound { .. } => "check the keyspace name, or leave it out on a classic cluster",
            Self::BehindSafePoint { .. } => {
                "history before the safe point may be gone: start from a newer timestamp with a new snapshot"
            }
            _ => return None,
        };
        Some(Cow::Borrowed(hint))
    }
}
