//! Resolved timestamps (`reference/cdc-protocol.md` §7.1).

use std::collections::BTreeMap;

use tidegate_core::{RegionId, ResolvedTs, Span, StartTs};
use tidegate_proto::cdcpb;

use super::{Downstream, EventSize, Feeds, Item, MinTs, Outgoing, Phase, RequestId, StreamId, event};

/// Regions are sorted by timestamp and cut into groups of 8, 32, 128, …: the ones that lag most are in small
/// groups, so that they do not hold many others back.
const FIRST_GROUP: usize = 8;
const GROUP_GROWTH: usize = 4;

impl Feeds {
    /// One round: everybody whose scan is through learns how far its range is resolved. `min_ts` is a fresh
    /// timestamp, and `oldest_lock` the smallest start timestamp of a lock in a span.
    pub(crate) fn resolve(&mut self, min_ts: MinTs, oldest_lock: impl Fn(&Span) -> Option<StartTs>) {
        let mut rounds: BTreeMap<(StreamId, RequestId), Vec<(ResolvedTs, RegionId)>> = BTreeMap::new();
        for downstream in self.downstreams.values_mut().filter(|d| d.phase == Phase::Normal) {
            let resolved = downstream.advance(min_ts, oldest_lock(&downstream.span));
            let key = (downstream.stream, downstream.request_id);
            rounds.entry(key).or_default().push((resolved, downstream.region_id));
        }
        for ((stream, request), regions) in self.by_batch(rounds) {
            self.send_resolved(stream, request, regions);
        }
    }

    /// Streams without multiplexing get one batch for all their requests.
    fn by_batch(
        &self,
        rounds: BTreeMap<(StreamId, RequestId), Vec<(ResolvedTs, RegionId)>>,
    ) -> BTreeMap<(StreamId, RequestId), Vec<(ResolvedTs, RegionId)>> {
        let mut batches: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((stream, request), regions) in rounds {
            let joined = self
                .streams
                .get(&stream)
                .is_some_and(|stream| !stream.multiplexed && stream.version.takes_batched_resolved());
            let request = if joined { RequestId(0) } else { request };
            batches.entry((stream, request)).or_default().extend(regions);
        }
        batches
    }

    fn send_resolved(&mut self, id: StreamId, request: RequestId, mut regions: Vec<(ResolvedTs, RegionId)>) {
        let Some(stream) = self.streams.get(&id) else { return };
        if !stream.version.takes_batched_resolved() {
            if !stream.multiplexed {
                self.send_one_by_one(id, request, &regions);
            }
            // An old version together with multiplexing gets none at all, as from TiKV.
            return;
        }
        regions.sort_unstable();
        let (mut rest, mut group) = (regions.as_slice(), FIRST_GROUP);
        while let Some((lowest, _)) = rest.first() {
            let (batch, later) = rest.split_at(group.min(rest.len()));
            let resolved = cdcpb::ResolvedTs {
                regions: batch.iter().map(|(_, region_id)| region_id.get()).collect(),
                ts: lowest.get(),
                request_id: request.0,
            };
            self.outbox.push(Outgoing { stream: id, item: Item::Resolved(resolved), region_id: None });
            (rest, group) = (later, group * GROUP_GROWTH);
        }
    }

    fn send_one_by_one(&mut self, id: StreamId, request: RequestId, regions: &[(ResolvedTs, RegionId)]) {
        for (ts, region_id) in regions {
            let event = event::resolved(request, *region_id, ts.get());
            let item = Item::Event { event, size: EventSize::default() };
            self.outbox.push(Outgoing { stream: id, item, region_id: None });
        }
    }
}

impl Downstream {
    fn advance(&mut self, min_ts: MinTs, oldest_lock: Option<StartTs>) -> ResolvedTs {
        let resolved = oldest_lock.map_or(min_ts, |lock| min_ts.min(lock.ts())).as_resolved();
        // A transaction that began long ago may lock a key now: it will commit above what was promised, so
        // its lock must not take the promise back.
        self.resolved = self.resolved.max(resolved);
        self.resolved
    }
}
