//! Traffic of a real TiKV, recorded between a public client and three stores, through the matcher.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use tidegate_codec::key::table_span;
use tidegate_core::{CommitTs, Op, RawChange, RegionId, ResolvedTs, Span, StartTs, TableId};
use tidegate_proto::cdcpb::{ChangeDataEvent, ChangeDataRequest, change_data_request, event};
use tidegate_puller::bounds::KeyBounds;
use tidegate_puller::matcher::Matcher;
use tidegate_puller::row::Row;
use tidegate_testkit::{FrameKind, History, data, load_frames};

/// Identity of a version.
type Id = (Bytes, StartTs, CommitTs);
/// What a version says: operation, value and the value before.
type Content = (Op, Bytes, Bytes);

/// A registration that the recorded client made.
struct Registration {
    bounds: KeyBounds,
    matcher: Matcher,
    resolved: ResolvedTs,
    checkpoint: ResolvedTs,
    span: Span,
    out: Vec<RawChange>,
    initialized: bool,
}

impl Registration {
    fn new(request: &ChangeDataRequest) -> Self {
        let span = Span::new(request.start_key.clone(), request.end_key.clone());
        let checkpoint = ResolvedTs::new(request.checkpoint_ts);
        Self {
            bounds: KeyBounds::new(&span),
            matcher: Matcher::new(RegionId(request.region_id), checkpoint.ts().as_start()),
            resolved: checkpoint,
            checkpoint,
            span,
            out: Vec::new(),
            initialized: false,
        }
    }

    fn feed(&mut self, message: event::Row, region: RegionId) {
        let row = Row::from_proto(message, region).expect("a real store sends rows that mean something");
        if row.key().is_some_and(|key| !self.bounds.contains(key)) {
            return;
        }
        self.initialized |= row == Row::Initialized;
        self.matcher.step(row, self.resolved, &mut self.out).expect("a real store keeps its promises");
    }
}

/// All registrations of a recording, fed with all events of their streams up to their errors.
fn replay(name: &str) -> Vec<Registration> {
    // Live registrations by stream, request id and region; and those that ended.
    let mut live: BTreeMap<(u64, u64, u64), Registration> = BTreeMap::new();
    let mut ended = Vec::new();
    for frame in load_frames(data::path(name)).expect("recorded data") {
        match frame.kind {
            FrameKind::Request(bytes) => {
                let request = ChangeDataRequest::decode(bytes).expect("a recorded request");
                let ids = (frame.stream, request.request_id, request.region_id);
                if let Some(change_data_request::Request::Deregister(_)) = request.request {
                    let gone = |key: &(u64, u64, u64)| key.0 == ids.0 && key.1 == ids.1;
                    ended.extend(
                        live.extract_if(.., |key, _| gone(key)).map(|(_, registration)| registration),
                    );
                } else {
                    let replaced = live.insert(ids, Registration::new(&request));
                    assert!(replaced.is_none(), "registered again without an error: {ids:?}");
                }
            }
            FrameKind::Closed(_) => {
                ended.extend(live.extract_if(.., |key, _| key.0 == frame.stream).map(|(_, gone)| gone));
            }
            FrameKind::Event(bytes) => {
                let message = ChangeDataEvent::decode(bytes).expect("a recorded event");
                for event in message.events {
                    let ids = (frame.stream, event.request_id, event.region_id);
                    match event.event {
                        Some(event::Event::Entries(entries)) => {
                            let Some(registration) = live.get_mut(&ids) else { continue };
                            entries
                                .entries
                                .into_iter()
                                .for_each(|row| registration.feed(row, RegionId(ids.2)));
                        }
                        Some(event::Event::Error(_)) => ended.extend(live.remove(&ids)),
                        other => panic!("a current store does not send {other:?}"),
                    }
                }
                let Some(resolved) = message.resolved_ts else { continue };
                for region in resolved.regions {
                    if let Some(registration) = live.get_mut(&(frame.stream, resolved.request_id, region))
                        && registration.initialized
                    {
                        registration.resolved = registration.resolved.max(ResolvedTs::new(resolved.ts));
                    }
                }
            }
        }
    }
    ended.extend(live.into_values());
    ended
}

/// The recorded versions of some tables, with the old value that follows from the version before.
fn expected(name: &str, tables: &[i64]) -> BTreeMap<Id, Content> {
    let spans: Vec<KeyBounds> =
        tables.iter().map(|id| KeyBounds::new(&table_span(None, TableId(*id)))).collect();
    let history = History::open(data::path(name)).expect("recorded data");
    let mut newest: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    let mut versions = BTreeMap::new();
    for version in
        history.log.into_iter().filter(|version| spans.iter().any(|span| span.contains(&version.key)))
    {
        let old = newest.insert(version.key.clone(), version.value.clone()).unwrap_or_default();
        let id = (version.key, version.start_ts, version.commit_ts);
        versions.insert(id, (version.op, version.value, old));
    }
    versions
}

fn collect(changes: &[RawChange]) -> BTreeMap<Id, Content> {
    let mut versions = BTreeMap::new();
    for change in changes {
        let id = (change.key.clone(), change.start_ts, change.commit_ts);
        let content = (change.op, change.value.clone(), change.old_value.clone());
        // The same version may come more than once, but never with another content.
        let first = versions.entry(id).or_insert_with(|| content.clone());
        assert_eq!(*first, content);
    }
    versions
}

#[test]
fn the_scans_of_a_real_store_give_the_committed_history_above_each_requests_checkpoint() {
    let history = expected("bank.history.jsonl.zst", &[320, 322]);
    let registrations = replay("bank.frames.jsonl.zst");
    let mut compared = 0;
    for registration in registrations.iter().filter(|registration| registration.initialized) {
        let mut wanted = history.clone();
        wanted.retain(|(key, _, commit), _| {
            registration.bounds.contains(key) && commit.ts() > registration.checkpoint.ts()
        });
        compared += wanted.len();
        assert!(collect(&registration.out) == wanted, "span {:?}", registration.span);
    }
    assert!(
        compared >= history.len(),
        "every version was read by some scan: {compared} of {}",
        history.len()
    );
}

#[test]
fn live_traffic_with_splits_leader_moves_and_a_killed_store_gives_exactly_the_committed_history() {
    let history = expected("bank-live.history.jsonl.zst", &[431, 433]);
    let registrations = replay("bank-live.frames.jsonl.zst");
    for registration in &registrations {
        for (id, content) in collect(&registration.out) {
            assert!(id.2.ts() > registration.checkpoint.ts());
            assert_eq!(history.get(&id), Some(&content), "a version that was never committed: {id:?}");
        }
    }
    let all: Vec<RawChange> = registrations.into_iter().flat_map(|registration| registration.out).collect();
    let found = collect(&all);
    let missing = history.keys().filter(|id| !found.contains_key(*id)).count();
    assert_eq!((missing, found.len()), (0, history.len()));
}
