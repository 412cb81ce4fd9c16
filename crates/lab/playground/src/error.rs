//! What can go wrong when an upstream is started or steered.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;

use tidegate_core::{Diagnostic, ErrorClass};

use crate::TopologyError;

/// Why the playground refused something.
#[derive(Debug, thiserror::Error)]
pub enum PlaygroundError {
    /// A port could not be opened.
    #[error("cannot listen on {address} for {service}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What was to be served there.
        service: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// An option is out of its range.
    #[error("option {name}: {problem}")]
    Option {
        /// The option's name.
        name: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A transaction met another one.
    #[error("the transaction was refused: {0}")]
    Refused(String),
    /// A region or store is not in the state that a control needs.
    #[error("the topology does not allow it")]
    Topology(#[from] TopologyError),
    /// A safe point cannot be moved there.
    #[error("the safe point was refused: {0}")]
    SafePoint(String),
    /// The store is not in the state that a control needs.
    #[error("store {store} is already {state}")]
    StoreState {
        /// The store.
        store: tidegate_core::StoreId,
        /// `running` or `stopped`.
        state: &'static str,
    },
}

impl Diagnostic for PlaygroundError {
    fn code(&self) -> &'static str {
        match self {
            Self::Listen { .. } => "TG-PLAY-001",
            Self::Option { .. } => "TG-PLAY-002",
            Self::Refused(_) => "TG-PLAY-003",
            Self::Topology(_) | Self::StoreState { .. } => "TG-PLAY-004",
            Self::SafePoint(_) => "TG-PLAY-005",
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            Self::Refused(_) => ErrorClass::Retry,
            _ => ErrorClass::Operator,
        }
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Listen { .. } => {
                "another process may use the port; choose another one, or 0 for any free port"
            }
            Self::Option { .. } => "see the option's documentation for its range",
            Self::Refused(_) => "a lock or a newer version is in the way; try again",
            Self::Topology(_) | Self::StoreState { .. } => "list the regions and stores and try again",
            Self::SafePoint(_) => "a safe point only moves forward, and not past a barrier",
        }))
    }
}
