//! One subscription as a pure state machine: cuts its span by regions, keeps a registration for each, follows
//! splits, merges, leader moves and errors, and yields changes and resolved timestamps.
//!
//! The caller owns the input and output: it asks PD, sends registrations to stores, and feeds back what
//! arrives. Everything of one registration must be fed in the order in which it arrived. A region's resolved
//! timestamp is recorded only here, in the same order as its rows: rows that get lost with a broken stream
//! were never covered by it, so the registration that follows brings them again.

use std::collections::BTreeMap;
use std::time::Duration;

use hashbrown::HashMap;
use tidegate_core::{MonoTime, RawChange, RegionId, ResolvedTs, Span, StartTs, StoreId, Ts};
use tidegate_invariants::check_invariant;
use tidegate_pd::{Region, RegionEpoch};

use crate::PullerError;
use crate::backoff;
use crate::bounds::KeyBounds;
use crate::failure::Failure;
use crate::ids::{RegistrationId, RequestId, SubscriptionId};
use crate::matcher::{MatchError, Matcher};
use crate::range_lock::{Lock, RangeLock};
use crate::row::Row;

/// PD lookups under way at a time for one subscription. One answers for up to 1,024 regions, so eight keep PD
/// busy enough, and PD is shared by everybody.
const FINDS_MAX: usize = 8;
/// Regions wanted in one answer of PD; what TiCDC asks for too.
pub const FIND_LIMIT: usize = 1024;
/// Pause after PD left a hole in its answer; it learns of splits and merges by heartbeat.
const HOLE_PAUSE: Duration = Duration::from_millis(100);
/// After this many failures a leader hint is not followed any more: two stores that name each other would be
/// asked in turn for ever. PD decides then.
const HINTS_MAX: u32 = 3;
/// How long an older registration may stand in the way of a newer region. The store ends it as soon as it
/// applies the split or merge, so ten seconds mean that it never will.
const SUPERSEDED_AFTER: Duration = Duration::from_secs(10);
/// A registration that streamed live changes this long was a good one; the next failure counts as the first.
/// One that fails soon after each scan must not be scanned again and again without growing pauses.
const GOOD_REGISTRATION: Duration = Duration::from_secs(10);
/// Pause before a region whose uncommitted data was too much is tried again; grows with each failure.
const HEAVY_PAUSE: Duration = Duration::from_secs(5);
/// A span that stands still this long and lags as far behind PD is checked for locks of dead transactions
/// (`reference/cdc-protocol.md` §15).
const STALE_AFTER_MS: u64 = 4_000;
/// A region is checked for locks at most this often.
const LOCK_CHECK_PAUSE: Duration = Duration::from_secs(10);
/// A span within ten minutes of PD's time has its regions scanned before those of spans that lag further.
const HIGH_PRIORITY_LAG_MS: u64 = 600_000;

/// Which regions a store scans first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// The subscription is close to the present.
    High,
    /// It is catching up.
    Low,
}

/// What a subscription is about.
#[derive(Clone, Debug)]
pub struct SpanConfig {
    /// The subscription.
    pub id: SubscriptionId,
    /// Its span of encoded keys.
    pub span: Span,
    /// Where it starts, exclusive.
    pub start_ts: StartTs,
    /// Bytes of uncommitted rows that may be held in memory; see [`Failure::TooMuchHeld`].
    pub held_bytes_max: usize,
    /// Seed of the pauses' randomness.
    pub seed: u64,
}

/// A range whose regions are wanted from PD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Find {
    /// The range.
    pub span: Span,
    /// How often in a row something went wrong there.
    pub attempts: u32,
}

/// A region to be registered at its leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// This registration.
    pub id: RegistrationId,
    /// What the store is to echo.
    pub request_id: RequestId,
    /// The store of the leader.
    pub store_id: StoreId,
    /// The region.
    pub region_id: RegionId,
    /// Its epoch as known here.
    pub epoch: RegionEpoch,
    /// The part of it that the subscription covers, encoded.
    pub span: Span,
    /// Everything at or below it is already here.
    pub checkpoint: ResolvedTs,
    /// Its place in the store's queue.
    pub priority: Priority,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// PD answered [`Output::Find`]; without regions if it failed or knows none.
    Found(Find, Vec<Region>),
    /// Rows arrived.
    Rows(RegistrationId, Vec<Row>),
    /// These registrations are resolved up to the timestamp.
    Resolved(ResolvedTs, Vec<RegistrationId>),
    /// A registration ended.
    Failed(RegistrationId, Failure),
    /// Time passed; with PD's present timestamp if it is known.
    Tick(Option<Ts>),
}

/// What to do.
#[derive(Debug)]
pub enum Output {
    /// Ask PD for the regions of a range, and feed [`Input::Found`].
    Find(Find),
    /// Send a registration to its store.
    Register(Registration),
    /// A registration's scan is over: the store may begin another.
    Scanned(RegistrationId, StoreId),
    /// Tell the store to forget a registration.
    Withdraw(Registration),
    /// From now on register on streams that no other subscription shares.
    OwnStreams,
    /// Look for locks at or below the timestamp in the range, and resolve those of dead transactions.
    ResolveLocks(Span, Ts),
    /// Changes for the consumer.
    Changes(Vec<RawChange>),
    /// A resolved timestamp for the consumer, after the changes.
    Resolved(ResolvedTs),
    /// The subscription is over.
    Stop(PullerError),
}

/// Numbers for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanStatus {
    /// Regions that stream live changes.
    pub regions_live: usize,
    /// Regions that are registered or waiting to be, and not yet scanned.
    pub regions_scanning: usize,
    /// Pieces of the span that no region is registered for.
    pub pieces_free: usize,
    /// The span's resolved timestamp.
    pub resolved: ResolvedTs,
    /// Bytes of uncommitted rows held.
    pub held_bytes: usize,
    /// Ended registrations by [`Failure::KINDS`].
    pub failures: [u64; Failure::KINDS.len()],
}

#[derive(Debug)]
struct Registered {
    region: Region,
    registration: Registration,
    bounds: KeyBounds,
    matcher: Matcher,
    /// Failures in a row before this registration.
    attempts: u32,
    /// Since when it streams live changes.
    live_since: Option<MonoTime>,
    /// Since when a newer region waits for this one to end.
    superseded_since: Option<MonoTime>,
    locks_checked: Option<MonoTime>,
}

#[derive(Debug)]
enum Task {
    Find(Find),
    Register(Region, u32),
}

/// The state machine.
#[derive(Debug)]
pub struct SpanCore {
    config: SpanConfig,
    rng: fastrand::Rng,
    lock: RangeLock,
    registered: HashMap<RegistrationId, Registered>,
    by_region: HashMap<RegionId, RegistrationId>,
    /// Due time and a running number, so that equal times keep their order.
    tasks: BTreeMap<(MonoTime, u64), Task>,
    /// Lookups that wait for one of [`FINDS_MAX`] places.
    finds: Vec<Find>,
    finding: usize,
    counter: u64,
    withdrawals: u64,
    scanning: usize,
    held_bytes: usize,
    changes: Vec<RawChange>,
    forwarded: Option<ResolvedTs>,
    /// When the span's resolved timestamp last moved.
    moved_at: MonoTime,
    pd_now: Option<Ts>,
    priority: Priority,
    stopped: bool,
    failures: [u64; Failure::KINDS.len()],
}

impl SpanCore {
    /// A subscription that begins with the next step.
    pub fn new(config: SpanConfig, now: MonoTime) -> Self {
        let whole = Find { span: config.span.clone(), attempts: 0 };
        Self {
            rng: fastrand::Rng::with_seed(config.seed),
            lock: RangeLock::new(&config.span, config.start_ts.ts().as_resolved()),
            registered: HashMap::new(),
            by_region: HashMap::new(),
            tasks: BTreeMap::from([((now, 0), Task::Find(whole))]),
            finds: Vec::new(),
            finding: 0,
            counter: 0,
            withdrawals: 0,
            scanning: 0,
            held_bytes: 0,
            changes: Vec::new(),
            forwarded: None,
            moved_at: now,
            pd_now: None,
            priority: Priority::Low,
            stopped: false,
            failures: [0; Failure::KINDS.len()],
            config,
        }
    }

    /// When [`Input::Tick`] is wanted at the latest, if nothing else happens; `None`: not before something
    /// happens.
    pub fn next_wake(&self) -> Option<MonoTime> {
        self.tasks.first_key_value().map(|((due, _), _)| *due)
    }

    /// Numbers for metrics.
    pub fn status(&self) -> SpanStatus {
        let (held, pieces_free) = self.lock.counts();
        SpanStatus {
            regions_live: held - self.scanning,
            regions_scanning: self.scanning,
            pieces_free,
            resolved: self.lock.resolved(),
            held_bytes: self.held_bytes,
            failures: self.failures,
        }
    }

    /// Takes one input. Changes gather until [`SpanCore::flush`].
    pub fn step(&mut self, input: Input, now: MonoTime, out: &mut Vec<Output>) {
        if self.stopped {
            return;
        }
        match input {
            Input::Found(find, regions) => self.found(&find, regions, now, out),
            Input::Rows(id, rows) => self.rows(id, rows, now, out),
            Input::Resolved(ts, ids) => self.resolved(ts, &ids, now),
            Input::Failed(id, failure) => self.fail(id, failure, now, out),
            Input::Tick(pd_now) => self.tick(pd_now, now, out),
        }
        self.run_due(now, out);
    }

    /// Yields what gathered: changes first, then the resolved timestamp if it moved.
    pub fn flush(&mut self, out: &mut Vec<Output>) {
        if self.stopped {
            return;
        }
        let last = self.forwarded.unwrap_or(self.config.start_ts.ts().as_resolved());
        let changes = std::mem::take(&mut self.changes);
        if let Some(lowest) = changes.iter().map(|change| change.commit_ts).min() {
            let id = self.config.id;
            if !check_invariant!(
                I3,
                lowest.ts() > last.ts(),
                "subscription {id}: commit {lowest}, resolved {last}"
            ) {
                let detail = format!("a version committed at {lowest} came after {last} was resolved");
                return self.stop(PullerError::Protocol { detail }, out);
            }
            out.push(Output::Changes(changes));
        }
        let resolved = self.lock.resolved();
        let complete = self.scanning == 0 && self.lock.counts().1 == 0;
        if resolved > last || (self.forwarded.is_none() && complete) {
            self.forwarded = Some(resolved);
            out.push(Output::Resolved(resolved));
        }
    }

    fn stop(&mut self, error: PullerError, out: &mut Vec<Output>) {
        self.stopped = true;
        self.tasks.clear();
        out.push(Output::Stop(error));
    }

    // Finding and registering regions.

    fn found(&mut self, find: &Find, regions: Vec<Region>, now: MonoTime, out: &mut Vec<Output>) {
        self.finding = self.finding.saturating_sub(1);
        let count = regions.len();
        let mut next = Some(find.span.start.clone());
        for region in regions {
            next = (!region.span.end.is_empty()).then(|| region.span.end.clone());
            self.try_register(region, find.attempts, now, out);
        }
        let Some(rest) =
            next.map(|start| Span::new(start, find.span.end.clone())).filter(|rest| !rest.is_empty())
        else {
            return;
        };
        if count == 0 {
            return self.find_later(rest, find.attempts + 1, now);
        }
        // More regions than one answer holds, or a hole behind those found.
        let due = if count >= FIND_LIMIT { now } else { now.after(HOLE_PAUSE) };
        self.schedule(due, Task::Find(Find { span: rest, attempts: find.attempts }));
    }

    fn try_register(&mut self, region: Region, attempts: u32, now: MonoTime, out: &mut Vec<Output>) {
        let Some(span) = region.span.intersect(&self.config.span) else { return };
        let Some(leader) = region.leader else { return self.find_later(span, attempts + 1, now) };
        match self.lock.lock(&span, region.id, region.epoch.version) {
            Lock::Held(checkpoint) => {
                let registration = self.registration(&region, leader.store_id, span, checkpoint);
                out.push(Output::Register(registration.clone()));
                self.insert(region, registration, attempts);
            }
            Lock::Stale(free) => free.into_iter().for_each(|gap| self.find_later(gap, attempts + 1, now)),
            Lock::Wait(free, in_the_way) => {
                for region_id in in_the_way {
                    if let Some(older) =
                        self.by_region.get(&region_id).and_then(|id| self.registered.get_mut(id))
                    {
                        older.superseded_since.get_or_insert(now);
                    }
                }
                free.into_iter().for_each(|gap| self.find_later(gap, attempts + 1, now));
            }
        }
    }

    fn registration(
        &mut self,
        region: &Region,
        store_id: StoreId,
        span: Span,
        checkpoint: ResolvedTs,
    ) -> Registration {
        self.counter += 1;
        Registration {
            id: RegistrationId(self.counter),
            request_id: self.config.id.request(self.withdrawals),
            store_id,
            region_id: region.id,
            epoch: region.epoch,
            span,
            checkpoint,
            priority: self.priority_of(checkpoint),
        }
    }

    fn insert(&mut self, region: Region, registration: Registration, attempts: u32) {
        self.scanning += 1;
        self.by_region.insert(region.id, registration.id);
        let registered = Registered {
            bounds: KeyBounds::new(&registration.span),
            matcher: Matcher::new(region.id, self.config.start_ts),
            region,
            attempts,
            live_since: None,
            superseded_since: None,
            locks_checked: None,
            registration,
        };
        self.registered.insert(registered.registration.id, registered);
    }

    /// A subscription that was once close to the present stays important.
    fn priority_of(&mut self, checkpoint: ResolvedTs) -> Priority {
        let Some(pd_now) = self.pd_now else { return self.priority };
        let near = |ts: ResolvedTs| pd_now.physical_ms() < ts.physical_ms() + HIGH_PRIORITY_LAG_MS;
        if near(self.lock.resolved()) {
            self.priority = Priority::High;
        }
        if near(checkpoint) { Priority::High } else { self.priority }
    }

    fn find_later(&mut self, span: Span, attempts: u32, now: MonoTime) {
        let due = now.after(backoff::pause(attempts, &mut self.rng));
        self.schedule(due, Task::Find(Find { span, attempts }));
    }

    fn schedule(&mut self, due: MonoTime, task: Task) {
        self.counter += 1;
        self.tasks.insert((due, self.counter), task);
    }

    fn run_due(&mut self, now: MonoTime, out: &mut Vec<Output>) {
        while let Some(entry) = self.tasks.first_entry() {
            if entry.key().0 > now || self.stopped {
                break;
            }
            match entry.remove() {
                Task::Find(find) => self.finds.push(find),
                Task::Register(region, attempts) => self.try_register(region, attempts, now, out),
            }
        }
        self.send_finds(out);
    }

    /// Merges what can be asked at once, and sends as much as there are places for.
    fn send_finds(&mut self, out: &mut Vec<Output>) {
        if self.finds.is_empty() || self.finding >= FINDS_MAX {
            return;
        }
        self.finds = merge(std::mem::take(&mut self.finds), FINDS_MAX);
        let places = (FINDS_MAX - self.finding).min(self.finds.len());
        self.finding += places;
        out.extend(self.finds.drain(..places).map(Output::Find));
    }

    // What registrations bring.

    fn rows(&mut self, id: RegistrationId, rows: Vec<Row>, now: MonoTime, out: &mut Vec<Output>) {
        let Some(registered) = self.registered.get_mut(&id) else { return };
        let Some(resolved) = self.lock.resolved_of(registered.region.id) else { return };
        let held_before = registered.matcher.held_bytes();
        let was_initialized = registered.matcher.is_initialized();
        let mut result = Ok(());
        for row in rows {
            // Servers before 7.0 send the whole region, whatever part was asked for.
            if row.key().is_some_and(|key| !registered.bounds.contains(key)) {
                continue;
            }
            result = registered.matcher.step(row, resolved, &mut self.changes);
            if result.is_err() {
                break;
            }
        }
        if registered.matcher.is_initialized() && !was_initialized {
            registered.live_since = Some(now);
            self.scanning -= 1;
            out.push(Output::Scanned(id, registered.registration.store_id));
        }
        self.held_bytes = self.held_bytes - held_before + registered.matcher.held_bytes();
        match result {
            Ok(()) if self.held_bytes > self.config.held_bytes_max => {
                self.fail(id, Failure::TooMuchHeld, now, out)
            }
            Ok(()) => {}
            Err(error @ MatchError::PrewriteMissing { .. }) => {
                tracing::warn!(subscription = %self.config.id, %error, "scanning the region again");
                self.fail(id, Failure::Unmatched, now, out);
            }
            Err(error) => self.stop(PullerError::Protocol { detail: error.to_string() }, out),
        }
    }

    fn resolved(&mut self, ts: ResolvedTs, ids: &[RegistrationId], now: MonoTime) {
        let before = self.lock.resolved();
        for id in ids {
            let Some(registered) = self.registered.get_mut(id) else { continue };
            if registered.matcher.is_initialized() && self.lock.advance(registered.region.id, ts) {
                let held_before = registered.matcher.held_bytes();
                registered.matcher.sweep(ts);
                self.held_bytes = self.held_bytes - held_before + registered.matcher.held_bytes();
            }
        }
        if self.lock.resolved() > before {
            self.moved_at = now;
        }
    }

    fn fail(&mut self, id: RegistrationId, failure: Failure, now: MonoTime, out: &mut Vec<Output>) {
        let Some(registered) = self.remove(id) else { return };
        if let Some(count) = self.failures.get_mut(failure.kind_index()) {
            *count += 1;
        }
        let Some((span, _)) = self.lock.unlock(registered.region.id) else { return };
        if failure.leaves_registered() {
            // Late events of the withdrawn registration would be taken for the new one's under the same id.
            self.withdrawals += 1;
            out.push(Output::Withdraw(registered.registration.clone()));
        }
        self.react(registered, span, failure, now, out);
    }

    fn remove(&mut self, id: RegistrationId) -> Option<Registered> {
        let registered = self.registered.remove(&id)?;
        self.by_region.remove(&registered.region.id);
        self.held_bytes -= registered.matcher.held_bytes();
        self.scanning -= usize::from(!registered.matcher.is_initialized());
        Some(registered)
    }

    /// What follows from a failure (`reference/cdc-protocol.md` §14). The range is free already.
    fn react(
        &mut self,
        registered: Registered,
        span: Span,
        failure: Failure,
        now: MonoTime,
        out: &mut Vec<Output>,
    ) {
        let Registered { mut region, registration, attempts, live_since, .. } = registered;
        let was_good = live_since.is_some_and(|since| now.since(since) >= GOOD_REGISTRATION);
        let attempts = if was_good { 1 } else { attempts + 1 };
        let same_region = |core: &mut Self, region, asked| {
            let due = now.after(backoff::pause_asked(attempts, asked, &mut core.rng));
            core.schedule(due, Task::Register(region, attempts));
        };
        match failure {
            Failure::NotLeader(Some(leader)) if attempts <= HINTS_MAX => {
                region.leader = Some(leader);
                same_region(self, region, Duration::ZERO);
            }
            Failure::EpochNotMatch(regions) => {
                self.follow_regions(&region, regions, span, attempts, now, out)
            }
            Failure::Congested | Failure::Unknown | Failure::Duplicate | Failure::Unmatched => {
                same_region(self, region, Duration::ZERO);
            }
            Failure::Busy(asked) => same_region(self, region, asked),
            Failure::TooMuchHeld => same_region(self, region, HEAVY_PAUSE * attempts),
            Failure::Evicted => {
                out.push(Output::OwnStreams);
                same_region(self, region, Duration::ZERO);
            }
            Failure::NotLeader(_)
            | Failure::RegionNotFound
            | Failure::StreamBroken
            | Failure::StoreGone
            | Failure::Superseded => self.find_later(span, attempts, now),
            fatal => self.stop(fatal_error(fatal, registration.store_id), out),
        }
    }

    /// Takes over the regions that the store named, as far as they are newer, and looks up the rest.
    fn follow_regions(
        &mut self,
        old: &Region,
        regions: Vec<Region>,
        span: Span,
        attempts: u32,
        now: MonoTime,
        out: &mut Vec<Output>,
    ) {
        let newer = |region: &Region| region.epoch.version > old.epoch.version && region.leader.is_some();
        let overlaps = |region: &Region| region.span.intersect(&span).is_some();
        for region in regions.into_iter().filter(|region| newer(region) && overlaps(region)) {
            self.try_register(region, attempts, now, out);
        }
        let gaps: Vec<Span> = self.lock.free().filter_map(|free| free.intersect(&span)).collect();
        gaps.into_iter().for_each(|gap| self.find_later(gap, attempts, now));
    }

    // Time.

    fn tick(&mut self, pd_now: Option<Ts>, now: MonoTime, out: &mut Vec<Output>) {
        self.pd_now = pd_now.or(self.pd_now);
        self.end_superseded(now, out);
        if !self.stopped {
            self.check_locks(now, out);
        }
    }

    fn end_superseded(&mut self, now: MonoTime, out: &mut Vec<Output>) {
        let too_long = |since: &MonoTime| now.since(*since) >= SUPERSEDED_AFTER;
        let ids: Vec<RegistrationId> = self
            .registered
            .iter()
            .filter(|(_, registered)| registered.superseded_since.as_ref().is_some_and(too_long))
            .map(|(id, _)| *id)
            .collect();
        ids.into_iter().for_each(|id| self.fail(id, Failure::Superseded, now, out));
    }

    fn check_locks(&mut self, now: MonoTime, out: &mut Vec<Output>) {
        let resolved = self.lock.resolved();
        let Some(pd_now) = self.pd_now.filter(|_| self.scanning == 0) else { return };
        let stands = now.since(self.moved_at) >= Duration::from_millis(STALE_AFTER_MS);
        if !stands || pd_now.physical_ms() < resolved.physical_ms() + STALE_AFTER_MS {
            return;
        }
        let target = Ts::from_parts((resolved.physical_ms() + STALE_AFTER_MS).min(pd_now.physical_ms()), 0);
        for registered in self.registered.values_mut() {
            let behind = self.lock.resolved_of(registered.region.id).is_some_and(|ts| ts.ts() < target);
            let checked = registered.locks_checked.is_some_and(|at| now.since(at) < LOCK_CHECK_PAUSE);
            if behind && !checked {
                registered.locks_checked = Some(now);
                out.push(Output::ResolveLocks(registered.registration.span.clone(), target));
            }
        }
    }
}

/// Joins ranges that touch or overlap; and, while more than `most` are left, neighbours with gaps between
/// them: PD answers for a thousand regions at once, and regions that are registered already do no harm.
fn merge(mut finds: Vec<Find>, most: usize) -> Vec<Find> {
    finds.sort_by(|a, b| a.span.start.cmp(&b.span.start));
    let touching = join(finds, |last, next| last.end.is_empty() || next.start <= last.end);
    if touching.len() <= most {
        return touching;
    }
    let group = touching.len().div_ceil(most);
    let mut at = 0;
    join(touching, |_, _| {
        at += 1;
        at % group != 0
    })
}

fn join(finds: Vec<Find>, mut joins: impl FnMut(&Span, &Span) -> bool) -> Vec<Find> {
    let mut joined: Vec<Find> = Vec::new();
    for find in finds {
        match joined.last_mut() {
            Some(last) if joins(&last.span, &find.span) => {
                if tidegate_core::span::end_before(&last.span.end, &find.span.end) {
                    last.span.end = find.span.end;
                }
                last.attempts = last.attempts.max(find.attempts);
            }
            _ => joined.push(find),
        }
    }
    joined
}

fn fatal_error(failure: Failure, store_id: StoreId) -> PullerError {
    match failure {
        Failure::Incompatible(required) => {
            PullerError::IncompatibleStore { store_id, version: "unknown".into(), required }
        }
        Failure::StoreVersion { version, required } => {
            PullerError::IncompatibleStore { store_id, version, required }
        }
        Failure::ClusterMismatch(actual) => PullerError::ClusterMismatch { store_id, actual },
        Failure::Malformed(detail) => PullerError::Protocol { detail },
        other => PullerError::Protocol { detail: format!("unexpected failure {}", other.kind()) },
    }
}

#[cfg(test)]
#[path = "span_core_tests.rs"]
mod tests;
