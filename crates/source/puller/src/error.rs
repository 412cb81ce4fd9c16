//! What can end a subscription.

use std::borrow::Cow;

use tidegate_core::{ClusterId, Diagnostic, ErrorClass, StartTs, StoreId, Ts};
use tidegate_pd::PdError;

/// An error of the puller. On a subscription every one of them is terminal: what can be retried has been.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PullerError {
    /// History after the start timestamp may have been collected.
    #[error("cannot start after {start_ts}: garbage collection has reached {safe_point}")]
    StartBelowGc {
        /// Where the subscription, or a region of it that has to be scanned again, wanted to start.
        start_ts: StartTs,
        /// The transaction safe point.
        safe_point: Ts,
    },
    /// The span holds no key.
    #[error("the span to subscribe to is empty")]
    EmptySpan,
    /// A store runs a version whose change feed is not understood.
    #[error("store {store_id} runs version {version:?}, the change feed needs {required}")]
    IncompatibleStore {
        /// The store.
        store_id: StoreId,
        /// Its version.
        version: String,
        /// What is needed.
        required: String,
    },
    /// A store belongs to another cluster.
    #[error("store {store_id} belongs to cluster {actual}, which is not PD's")]
    ClusterMismatch {
        /// The store.
        store_id: StoreId,
        /// The cluster that answered.
        actual: ClusterId,
    },
    /// A store broke a promise of its protocol; continuing could lose data silently.
    #[error("the change feed broke its protocol: {detail}")]
    Protocol {
        /// What happened, with region and timestamps; never row values.
        detail: String,
    },
    /// PD could not be used.
    #[error(transparent)]
    Pd(#[from] PdError),
    /// A store refused a read.
    #[error("cannot read from the stores: {detail}")]
    Read {
        /// What happened, with region and timestamp.
        detail: String,
    },
    /// The puller was stopped.
    #[error("the puller is stopped")]
    Stopped,
}

impl Diagnostic for PullerError {
    fn code(&self) -> &'static str {
        match self {
            Self::StartBelowGc { .. } => "TG-PULL-001",
            Self::EmptySpan => "TG-PULL-002",
            Self::IncompatibleStore { .. } => "TG-PULL-003",
            Self::ClusterMismatch { .. } => "TG-PULL-004",
            Self::Protocol { .. } => "TG-PULL-005",
            Self::Pd(error) => error.code(),
            Self::Read { .. } => "TG-PULL-006",
            Self::Stopped => "TG-PULL-007",
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            Self::StartBelowGc { .. } | Self::IncompatibleStore { .. } | Self::ClusterMismatch { .. } => {
                ErrorClass::Operator
            }
            Self::EmptySpan => ErrorClass::Bug,
            Self::Protocol { .. } => ErrorClass::Corrupt,
            Self::Pd(error) => error.class(),
            Self::Read { .. } => ErrorClass::Retry,
            Self::Stopped => ErrorClass::Wait,
        }
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            Self::StartBelowGc { .. } => {
                "start from a newer timestamp with a new snapshot, and hold a GC barrier before subscribing"
            }
            Self::IncompatibleStore { .. } => "upgrade the cluster to at least TiKV 7.5",
            Self::ClusterMismatch { .. } => "check that PD's store addresses lead to this cluster's stores",
            Self::Pd(error) => return error.hint(),
            _ => return None,
        };
        Some(Cow::Borrowed(hint))
    }
}
