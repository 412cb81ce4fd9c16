//! The way from the streams to a subscription: one first-in-first-out queue, bounded in messages and in
//! bytes.
//!
//! Bytes are charged before a message enters the queue and given back when the consumer asks for the next
//! event after it has received the rows. A stream that finds no room waits, which stops reading from its
//! connection: back-pressure reaches the store through HTTP/2's windows.

use std::sync::Arc;

use tidegate_core::ResolvedTs;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::failure::Failure;
use crate::ids::{RegistrationId, SubscriptionId};
use crate::row::Row;

/// Messages that may wait besides the byte limit: resolved timestamps weigh nothing, and a store sends a few
/// each second.
const MESSAGES_MAX: usize = 1024;
/// Bytes of one permit; a coarser unit than a byte keeps large budgets within a semaphore's range.
const PERMIT_BYTES: usize = 1024;
/// What a row weighs besides its bytes: its place in the vectors that carry it.
const ROW_OVERHEAD_BYTES: usize = 128;

/// One thing that happened to one registration or several.
#[derive(Debug)]
pub(crate) enum Item {
    /// Rows, in the order of their event.
    Rows(RegistrationId, Vec<Row>),
    /// A resolved timestamp of some registrations.
    Resolved(ResolvedTs, Vec<RegistrationId>),
    /// The end of a registration.
    Failed(RegistrationId, Failure),
}

/// Items of one subscription out of one message, with the bytes they are charged for.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) items: Vec<Item>,
    pub(crate) charge: Option<OwnedSemaphorePermit>,
}

/// The sending end; one per subscription, shared by all streams.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) subscription: SubscriptionId,
    sender: mpsc::Sender<Batch>,
    budget: Arc<Semaphore>,
    permits_max: usize,
}

impl Route {
    /// A route with `bytes_max` of budget, and its receiving end.
    pub(crate) fn new(subscription: SubscriptionId, bytes_max: usize) -> (Arc<Self>, mpsc::Receiver<Batch>) {
        let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
        let permits_max = (bytes_max / PERMIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        let budget = Arc::new(Semaphore::new(permits_max));
        (Arc::new(Self { subscription, sender, budget, permits_max }), receiver)
    }

    /// Waits for room and sends. Returns false if the subscription is gone.
    pub(crate) async fn send(&self, items: Vec<Item>) -> bool {
        // One message may be larger than the whole budget: it then enters alone.
        let permits = bytes(&items).div_ceil(PERMIT_BYTES).min(self.permits_max);
        let charge = match u32::try_from(permits) {
            Ok(0) => None,
            Ok(permits) => match Arc::clone(&self.budget).acquire_many_owned(permits).await {
                Ok(charge) => Some(charge),
                Err(_) => return false,
            },
            Err(_) => return false,
        };
        self.sender.send(Batch { items, charge }).await.is_ok()
    }

    /// Whether the subscription is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Bytes charged now.
    pub(crate) fn buffered_bytes(&self) -> usize {
        (self.permits_max - self.budget.available_permits().min(self.permits_max)) * PERMIT_BYTES
    }
}

fn bytes(items: &[Item]) -> usize {
    let weigh = |item: &Item| match item {
        Item::Rows(_, rows) => rows.iter().map(|row| row.size_bytes() + ROW_OVERHEAD_BYTES).sum(),
        Item::Resolved(_, ids) => ids.len() * size_of::<RegistrationId>(),
        Item::Failed(..) => 0,
    };
    items.iter().map(weigh).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::time::Duration;
    use tidegate_core::{CommitTs, Op, RawChange, RegionId, StartTs};
    use tokio::time::timeout;

    fn rows(bytes: usize) -> Vec<Item> {
        let row = Row::Committed(RawChange {
            op: Op::Put,
            key: Bytes::new(),
            value: Bytes::from(vec![0; bytes]),
            old_value: Bytes::new(),
            start_ts: StartTs::new(1),
            commit_ts: CommitTs::new(2),
            region_id: RegionId(1),
        });
        vec![Item::Rows(RegistrationId(1), vec![row])]
    }

    fn route(bytes_max: usize) -> (Arc<Route>, mpsc::Receiver<Batch>) {
        Route::new(SubscriptionId(1), bytes_max)
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_given_back_when_the_consumer_is_done_with_them() {
        let (route, mut inbox) = route(8 << 10);
        assert!(route.send(rows(6 << 10)).await);
        assert!(route.buffered_bytes() >= 6 << 10);
        let wait = Duration::from_secs(1);
        assert!(timeout(wait, route.send(rows(6 << 10))).await.is_err(), "no room for both");
        let batch = inbox.recv().await.expect("the first");
        assert!(timeout(wait, route.send(rows(6 << 10))).await.is_err(), "received is not yet worked off");
        drop(batch);
        assert!(timeout(wait, route.send(rows(6 << 10))).await.is_ok_and(|sent| sent));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_larger_than_the_budget_passes_alone() {
        let (route, mut inbox) = route(4 << 10);
        assert!(route.send(rows(1 << 20)).await);
        assert!(timeout(Duration::from_secs(1), route.send(rows(1))).await.is_err());
        drop(inbox.recv().await);
        assert!(route.send(rows(1)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_room_hears_that_the_subscription_is_gone() {
        let (route, inbox) = route(4 << 10);
        assert!(route.send(rows(4 << 10)).await);
        let sending = tokio::spawn({
            let route = Arc::clone(&route);
            async move { route.send(rows(4 << 10)).await }
        });
        tokio::task::yield_now().await;
        drop(inbox);
        assert!(route.is_closed());
        assert!(!timeout(Duration::from_secs(1), sending).await.expect("in time").expect("no panic"));
    }
}
