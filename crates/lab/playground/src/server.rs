//! The rim: sockets, tasks and the clock around the world.

mod feed;
mod health;
mod listen;

use std::sync::Arc;

use axum::Router;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tidegate_core::{Clock, StoreId};
use tidegate_proto::cdcpb::change_data_server::ChangeDataServer;
use tidegate_proto::health::health_server::HealthServer;
use tidegate_proto::keyspacepb::keyspace_server::KeyspaceServer;
use tidegate_proto::pdpb::pd_server::PdServer;
use tidegate_proto::tikvpb::tikv_server::TikvServer;
use tokio::sync::Semaphore;
use tonic::service::Routes;

pub(crate) use listen::{Server, bind};

use crate::kv::KvService;
use crate::pd::{PdService, http};
use crate::server::feed::FeedService;
use crate::server::health::Healthy;
use crate::world::{Now, World};

/// The world under its lock, with the clock it is told and the limits of the tasks around it.
pub(crate) struct Upstream {
    world: Mutex<World>,
    clock: Arc<dyn Clock>,
    scan_slots: HashMap<StoreId, Arc<Semaphore>>,
    /// Unix seconds.
    pub(crate) started_s: i64,
}

impl Upstream {
    pub(crate) fn new(world: World, clock: Arc<dyn Clock>, scans_max: usize) -> Arc<Self> {
        let slots = world.topology.stores().map(|store| (store.id, Arc::new(Semaphore::new(scans_max))));
        Arc::new(Self {
            scan_slots: slots.collect(),
            world: Mutex::new(world),
            started_s: i64::try_from(clock.wall_ms() / 1_000).unwrap_or(i64::MAX),
            clock,
        })
    }

    /// One atomic step of the world. Steps are short and never wait.
    pub(crate) fn step<R>(&self, step: impl FnOnce(&mut World, Now) -> R) -> R {
        let mut world = self.world.lock();
        let now = Now { wall_ms: self.clock.wall_ms(), mono: self.clock.mono() };
        step(&mut world, now)
    }

    fn scan_slots(&self, store: StoreId) -> Option<Arc<Semaphore>> {
        self.scan_slots.get(&store).cloned()
    }
}

/// Everything that PD's port answers: gRPC and HTTP.
pub(crate) fn pd_router(upstream: &Arc<Upstream>, url: &str) -> Router {
    let service = PdService::new(Arc::clone(upstream), url);
    Routes::new(PdServer::new(service.clone()).max_decoding_message_size(usize::MAX))
        .add_service(KeyspaceServer::new(service))
        .add_service(HealthServer::new(Healthy))
        .into_axum_router()
        .merge(http::router(Arc::clone(upstream), url))
}

/// Everything that a store's port answers.
pub(crate) fn store_router(upstream: &Arc<Upstream>, store: StoreId) -> Router {
    let kv = KvService::new(Arc::clone(upstream), store);
    let feed = FeedService::new(Arc::clone(upstream), store);
    // TiKV limits messages neither way: a batch of writes or the rows of one command may be large.
    Routes::new(TikvServer::new(kv).max_decoding_message_size(usize::MAX))
        .add_service(ChangeDataServer::new(feed).max_decoding_message_size(usize::MAX))
        .add_service(HealthServer::new(Healthy))
        .into_axum_router()
}
