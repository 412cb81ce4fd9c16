//! Being asked to stop.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::CliError;

/// Completes at the first Ctrl-C or termination signal. From the call on neither kills the process outright.
pub(crate) fn interrupted() -> Result<impl Future<Output = ()>, CliError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::Start)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::Start)?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
