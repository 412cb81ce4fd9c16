//! The running upstream: what starts, steers and stops it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tidegate_codec::key::to_region_key;
use tidegate_core::{ClusterId, CommitTs, RegionId, Span, StoreId, Ts};
use tidegate_testkit::History;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::engine::{Isolation, ReadView, ScanOptions};
use crate::keyspace::Keyspace;
use crate::options::FRESH_CLUSTER_ID;
use crate::oracle::Oracle;
use crate::server::{Server, Upstream, bind, pd_router, store_router};
use crate::topology::{Region, Topology};
use crate::world::{Genesis, World, Write};
use crate::{FeedFault, OracleStart, PlaygroundError, PlaygroundOptions, layout};

/// Pause between two looks at what a replay has to do: a hundredth of the delays that a replay shows.
const REPLAY_STEP: Duration = Duration::from_millis(5);

/// A region as controls and tests see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionView {
    /// Its id.
    pub id: RegionId,
    /// Its encoded range.
    pub span: Span,
    /// Grows with splits and merges.
    pub version: u64,
    /// The store that leads it.
    pub leader: StoreId,
    /// The stores that hold a replica.
    pub stores: Vec<StoreId>,
}

/// An upstream inside this process. Dropping it stops it without waiting; [`Playground::stop`] waits.
pub struct Playground {
    upstream: Arc<Upstream>,
    pd: Server,
    pd_address: SocketAddr,
    stores: Mutex<BTreeMap<StoreId, Option<Server>>>,
    addresses: BTreeMap<StoreId, SocketAddr>,
    tasks: TaskTracker,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

impl Playground {
    /// Opens all ports, loads the history and begins to serve.
    ///
    /// # Errors
    /// [`PlaygroundError::Option`] for an option out of range, [`PlaygroundError::Listen`] with the address
    /// for a port that cannot be opened.
    pub async fn start(mut options: PlaygroundOptions) -> Result<Self, PlaygroundError> {
        options.validate()?;
        let pd_listener = bind(SocketAddr::new(options.host, options.pd_port), "PD").await?;
        let pd_address = address_of(&pd_listener, "PD")?;
        let mut listeners = Vec::with_capacity(options.stores);
        for (index, id) in (0..options.stores).zip(1..) {
            let port = options.store_ports.get(index).copied().unwrap_or_default();
            let service = format!("store {id}");
            let listener = bind(SocketAddr::new(options.host, port), &service).await?;
            listeners.push((StoreId(id), address_of(&listener, &service)?, listener));
        }
        let addresses: BTreeMap<_, _> = listeners.iter().map(|(id, address, _)| (*id, *address)).collect();

        let history = options.history.take();
        let world = create_world(&options, history, addresses.values().map(ToString::to_string));
        let upstream = Upstream::new(world, Arc::clone(&options.clock), options.feed.scans_max);
        let stop = CancellationToken::new();
        let url = format!("http://{pd_address}");
        let pd = Server::start(pd_listener, pd_router(&upstream, &url), stop.child_token());
        let stores = listeners.into_iter().map(|(id, _, listener)| {
            (id, Some(Server::start(listener, store_router(&upstream, id), stop.child_token())))
        });
        let playground = Self {
            stores: Mutex::new(stores.collect()),
            upstream,
            pd,
            pd_address,
            addresses,
            tasks: TaskTracker::new(),
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
        };
        playground.spawn_tickers(options.resolved_interval);
        Ok(playground)
    }

    fn spawn_tickers(&self, resolved_interval: Duration) {
        let upstream = Arc::clone(&self.upstream);
        self.spawn_ticker(resolved_interval, move || {
            upstream.step(|world, now| world.resolve(now));
            true
        });
        if self.replay_pending() > 0 {
            let upstream = Arc::clone(&self.upstream);
            self.spawn_ticker(REPLAY_STEP, move || {
                upstream.step(|world, now| {
                    world.timestamp(now, 1);
                    world.replay_pending() > 0
                })
            });
        }
        self.tasks.close();
    }

    /// Runs `tick` again and again until it says that it is done.
    fn spawn_ticker(&self, period: Duration, tick: impl Fn() -> bool + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let mut interval = tokio::time::interval(period);
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = interval.tick() => if !tick() { return },
                }
            }
        });
    }

    /// PD's address, `host:port`.
    pub fn pd_endpoint(&self) -> String {
        self.pd_address.to_string()
    }

    /// The cluster's id: the history's, if there is one.
    pub fn cluster_id(&self) -> ClusterId {
        self.upstream.step(|world, _| world.cluster_id)
    }

    /// A fresh timestamp. Whatever was recorded up to it has happened.
    pub fn now(&self) -> Ts {
        self.upstream.step(|world, now| world.timestamp(now, 1))
    }

    /// Commits writes of raw keys as one transaction in two phases, whatever regions they meet.
    ///
    /// # Errors
    /// [`PlaygroundError::Refused`] if a lock of another transaction or a newer version is in the way.
    pub fn commit(&self, writes: Vec<Write>) -> Result<CommitTs, PlaygroundError> {
        self.upstream
            .step(|world, now| world.commit(writes, now))
            .map_err(|error| PlaygroundError::Refused(error.to_string()))
    }

    /// The committed value of a raw key at `ts`; locks are not waited for.
    pub fn get(&self, key: &[u8], ts: Ts) -> Option<Bytes> {
        let found = self.upstream.step(|world, _| world.engine.get(key, &committed_at(ts)));
        found.ok().flatten().map(|found| found.value)
    }

    /// The first `limit` committed keys and values of a raw range at `ts`, ascending; an empty end is open.
    pub fn scan(&self, start: &[u8], end: &[u8], ts: Ts, limit: usize) -> Vec<(Bytes, Bytes)> {
        let bound = |key: &[u8]| if key.is_empty() { Vec::new() } else { to_region_key(key) };
        let span = Span::new(bound(start), bound(end));
        let options = ScanOptions { limit, reverse: false, key_only: false };
        let scanned = self.upstream.step(|world, _| world.engine.scan(&span, &committed_at(ts), options));
        scanned.into_iter().filter_map(|(key, found)| Some((key, found.ok()?.value))).collect()
    }

    /// Recorded versions that have not happened yet.
    pub fn replay_pending(&self) -> usize {
        self.upstream.step(|world, _| world.replay_pending())
    }

    /// Waits until the whole history has happened.
    pub async fn replayed(&self) {
        while self.replay_pending() > 0 {
            tokio::time::sleep(REPLAY_STEP).await;
        }
    }

    /// The history so far: metadata as of the GC safe point and every version since.
    pub fn export(&self, name: &str) -> History {
        self.upstream.step(|world, _| world.export(name))
    }

    /// All regions, ascending by key.
    pub fn regions(&self) -> Vec<RegionView> {
        self.upstream.step(|world, _| world.topology.regions().map(region_view).collect())
    }

    /// The region that holds a raw key.
    pub fn region_of(&self, key: &[u8]) -> Option<RegionView> {
        self.upstream.step(|world, _| world.topology.region_of(&to_region_key(key)).map(region_view))
    }

    /// Splits the region that holds a raw key there. The right part keeps the id. Returns left and right.
    ///
    /// # Errors
    /// [`PlaygroundError::Topology`] if a region begins there already.
    pub fn split(&self, key: &[u8]) -> Result<(RegionId, RegionId), PlaygroundError> {
        Ok(self.upstream.step(|world, _| world.split(to_region_key(key).into()))?)
    }

    /// Merges a region into a neighbour, whose id stays.
    ///
    /// # Errors
    /// [`PlaygroundError::Topology`] if they are not neighbours.
    pub fn merge(&self, source: RegionId, target: RegionId) -> Result<(), PlaygroundError> {
        Ok(self.upstream.step(|world, _| world.merge(source, target))?)
    }

    /// Makes the replica on `store` lead the region.
    ///
    /// # Errors
    /// [`PlaygroundError::Topology`] if there is none or the store is stopped.
    pub fn move_leader(&self, region: RegionId, store: StoreId) -> Result<(), PlaygroundError> {
        Ok(self.upstream.step(|world, _| world.move_leader(region, store))?)
    }

    /// Stops a store as a kill does: its port closes, its connections break, its regions are led elsewhere.
    ///
    /// # Errors
    /// [`PlaygroundError::StoreState`] if it is stopped already.
    pub async fn stop_store(&self, store: StoreId) -> Result<(), PlaygroundError> {
        let server = self.stores.lock().get_mut(&store).and_then(Option::take);
        let server = server.ok_or(PlaygroundError::StoreState { store, state: "stopped" })?;
        server.stop().await;
        Ok(self.upstream.step(|world, _| world.store_stopped(store))?)
    }

    /// Starts a stopped store again, at its old address.
    ///
    /// # Errors
    /// [`PlaygroundError::StoreState`] if it runs, [`PlaygroundError::Listen`] if its port was taken
    /// meanwhile.
    pub async fn restart_store(&self, store: StoreId) -> Result<(), PlaygroundError> {
        let stopped = self.stores.lock().get(&store).is_some_and(Option::is_none);
        let address = self.addresses.get(&store).filter(|_| stopped);
        let address = *address.ok_or(PlaygroundError::StoreState { store, state: "running" })?;
        let listener = bind(address, &format!("store {store}")).await?;
        let server = Server::start(listener, store_router(&self.upstream, store), self.stop.child_token());
        self.stores.lock().insert(store, Some(server));
        Ok(self.upstream.step(|world, _| world.store_started(store))?)
    }

    /// Breaks the change-feed streams of a store; returns how many there were.
    pub fn drop_streams(&self, store: StoreId) -> usize {
        self.upstream.step(|world, _| world.drop_streams(store, "injected: the stream is dropped"))
    }

    /// Stops (`true`) or resumes the rounds of resolved timestamps.
    pub fn hold_resolved(&self, hold: bool) {
        self.upstream.step(|world, _| world.hold_resolved(hold));
    }

    /// Ends all change-feed registrations of a region with an error.
    pub fn inject_feed_error(&self, region: RegionId, fault: FeedFault) {
        self.upstream.step(|world, _| world.inject_fault(region, fault));
    }

    /// Advances the GC safe point towards `target`, as far as barriers allow, and drops what only older
    /// snapshots could read. Returns where it stopped.
    ///
    /// # Errors
    /// [`PlaygroundError::SafePoint`] if it would go back.
    pub fn collect_garbage(&self, target: Ts) -> Result<Ts, PlaygroundError> {
        self.upstream
            .step(|world, now| world.collect_garbage(target, now))
            .map(|advanced| advanced.new)
            .map_err(|error| PlaygroundError::SafePoint(error.to_string()))
    }

    /// Number of keys with any version or lock.
    pub fn key_count(&self) -> usize {
        self.upstream.step(|world, _| world.engine.key_count())
    }

    /// Breaks all connections, closes all ports and waits until everything has ended.
    pub async fn stop(self) {
        self.stop.cancel();
        self.pd.stop().await;
        let stores = std::mem::take(&mut *self.stores.lock());
        for server in stores.into_values().flatten() {
            server.stop().await;
        }
        self.tasks.wait().await;
    }
}

fn address_of(listener: &TcpListener, service: &str) -> Result<SocketAddr, PlaygroundError> {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    listener.local_addr().map_err(|source| PlaygroundError::Listen {
        address: unknown,
        service: service.to_owned(),
        source,
    })
}

/// The whole past is committed: locks do not hide it.
fn committed_at(ts: Ts) -> ReadView {
    ReadView { isolation: Isolation::ReadCommitted, ..ReadView::at(ts) }
}

fn region_view(region: &Region) -> RegionView {
    RegionView {
        id: region.id,
        span: region.span.clone(),
        version: region.epoch.version,
        leader: region.leader.store_id,
        stores: region.peers.iter().map(|peer| peer.store_id).collect(),
    }
}

fn create_world(
    options: &PlaygroundOptions,
    history: Option<History>,
    addresses: impl Iterator<Item = String>,
) -> World {
    let cluster_id = history.as_ref().map_or(FRESH_CLUSTER_ID, |history| history.header.cluster_id);
    let (base_ts, end_ts) =
        history.as_ref().map_or((Ts::ZERO, Ts::ZERO), |h| (h.header.base_ts, h.header.end_ts));
    let wall_ms = options.clock.wall_ms();
    let live_after = options.live_after.unwrap_or(end_ts).min(end_ts);
    let oracle = match options.oracle {
        _ if live_after < end_ts => Oracle::replaying(wall_ms, live_after, end_ts, options.speed),
        OracleStart::Wall => Oracle::real_time(wall_ms, wall_ms, end_ts),
        OracleStart::Recorded => Oracle::real_time(wall_ms, 0, end_ts),
    };
    let mut world = World::new(Genesis {
        cluster_id,
        topology: Topology::new(addresses),
        oracle,
        safe_point: base_ts.prev(),
        keyspaces: std::iter::once(Keyspace::default_one()).chain(options.keyspaces.clone()).collect(),
        feed_limits: options.feed.clone(),
    });
    if let Some(history) = history {
        for key in layout::split_keys(&history, options.regions) {
            // A key at which a region begins already needs no split.
            drop(world.split(key));
        }
        world.balance_leaders();
        world.load(history, live_after);
    }
    world
}
