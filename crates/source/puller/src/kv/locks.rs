//! placeholder
use crate::metrics::Counters;
use std::sync::Arc;
use tidegate_core::{KeyspaceId, Span, Ts};
use tidegate_pd::PdClient;
use tokio::sync::mpsc;
pub(crate) const CHECKS_MAX: usize = 1024;
#[derive(Debug)]
pub(crate) struct LockCheck {
    pub(crate) span: Span,
    pub(crate) ts: Ts,
    pub(crate) keyspace: Option<KeyspaceId>,
}
pub(crate) async fn serve(_pd: PdClient, mut checks: mpsc::Receiver<LockCheck>, counters: Arc<Counters>) {
    while let Some(check) = checks.recv().await {
        let _ = (check.span, check.ts, check.keyspace);
        counters.locks_resolved(0);
    }
}
