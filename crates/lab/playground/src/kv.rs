//! `tikvpb.Tikv`: one store's transactional calls (`reference/tikv-kv-protocol.md`).

mod batch;
mod convert;
mod locks;
mod read;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::StoreId;
use tidegate_proto::kvrpcpb;
use tidegate_proto::tikvpb::BatchCommandsRequest;
use tidegate_proto::tikvpb::tikv_server::Tikv;
use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};

use crate::server::Upstream;
use crate::world::World;

/// How long a pessimistic lock request waits if it does not say.
const LOCK_WAIT_DEFAULT: Duration = Duration::from_secs(1);
/// Waiting is asking again: locks of tests are held for milliseconds.
const LOCK_WAIT_STEP: Duration = Duration::from_millis(5);

/// One store's service.
#[derive(Clone)]
pub(crate) struct KvService {
    upstream: Arc<Upstream>,
    store: StoreId,
}

/// A request that names its region.
pub(crate) trait RegionRequest {
    fn context(&self) -> Option<&kvrpcpb::Context>;
}

impl KvService {
    pub(crate) fn new(upstream: Arc<Upstream>, store: StoreId) -> Self {
        Self { upstream, store }
    }

    /// Runs a request's handler as one step of the world.
    fn call<Q: RegionRequest, A>(
        &self,
        request: &Q,
        handler: fn(&mut World, StoreId, &Q) -> A,
    ) -> Result<A, Status> {
        self.upstream.step(|world, _| {
            let claimed = request.context().map_or(0, |context| context.cluster_id);
            if claimed != 0 && claimed != world.cluster_id.get() {
                let mine = world.cluster_id;
                return Err(Status::invalid_argument(format!("cluster id {claimed} is not {mine}")));
            }
            let answer = handler(world, self.store, request);
            world.dispatch();
            Ok(answer)
        })
    }

    /// Locks pessimistically, asking again for as long as the request is ready to wait.
    async fn pessimistic_lock(
        &self,
        request: &kvrpcpb::PessimisticLockRequest,
    ) -> Result<kvrpcpb::PessimisticLockResponse, Status> {
        let wait = match u64::try_from(request.wait_timeout) {
            Ok(0) => LOCK_WAIT_DEFAULT,
            Ok(ms) => Duration::from_millis(ms),
            Err(_) => Duration::ZERO,
        };
        let deadline = Instant::now() + wait;
        loop {
            let answer = self.call(request, locks::pessimistic_lock)?;
            let worth_waiting = answer.errors.iter().any(|error| error.locked.is_some());
            if !worth_waiting || Instant::now() >= deadline {
                return Ok(answer);
            }
            tokio::time::sleep(LOCK_WAIT_STEP).await;
        }
    }
}

/// Calls whose answer takes one step of the world.
macro_rules! tikv_calls {
    ($($method:ident: $request:ident -> $response:ident = $handler:path;)*) => {
        $(
            impl RegionRequest for kvrpcpb::$request {
                fn context(&self) -> Option<&kvrpcpb::Context> {
                    self.context.as_ref()
                }
            }
        )*

        #[tonic::async_trait]
        impl Tikv for KvService {
            $(
                async fn $method(
                    &self,
                    request: Request<kvrpcpb::$request>,
                ) -> Result<Response<kvrpcpb::$response>, Status> {
                    self.call(request.get_ref(), $handler).map(Response::new)
                }
            )*

            async fn kv_pessimistic_lock(
                &self,
                request: Request<kvrpcpb::PessimisticLockRequest>,
            ) -> Result<Response<kvrpcpb::PessimisticLockResponse>, Status> {
                self.pessimistic_lock(request.get_ref()).await.map(Response::new)
            }

            type BatchCommandsStream = batch::Answers;

            async fn batch_commands(
                &self,
                request: Request<Streaming<BatchCommandsRequest>>,
            ) -> Result<Response<Self::BatchCommandsStream>, Status> {
                Ok(Response::new(batch::serve(self.clone(), request.into_inner())))
            }
        }
    };
}

tikv_calls! {
    kv_get: GetRequest -> GetResponse
        = read::get;
    kv_batch_get: BatchGetRequest -> BatchGetResponse
        = read::batch_get;
    kv_scan: ScanRequest -> ScanResponse
        = read::scan;
    kv_prewrite: PrewriteRequest -> PrewriteResponse
        = write::prewrite;
    kv_commit: CommitRequest -> CommitResponse
        = write::commit;
    kv_batch_rollback: BatchRollbackRequest -> BatchRollbackResponse
        = write::batch_rollback;
    kv_cleanup: CleanupRequest -> CleanupResponse
        = write::cleanup;
    kv_check_txn_status: CheckTxnStatusRequest -> CheckTxnStatusResponse
        = locks::check_txn_status;
    kv_check_secondary_locks: CheckSecondaryLocksRequest -> CheckSecondaryLocksResponse
        = locks::check_secondary_locks;
    kv_resolve_lock: ResolveLockRequest -> ResolveLockResponse
        = locks::resolve_lock;
    kv_scan_lock: ScanLockRequest -> ScanLockResponse
        = locks::scan_lock;
    kv_pessimistic_rollback: PessimisticRollbackRequest -> PessimisticRollbackResponse
        = locks::pessimistic_rollback;
    kv_txn_heart_beat: TxnHeartBeatRequest -> TxnHeartBeatResponse
        = locks::heart_beat;
    unsafe_destroy_range: UnsafeDestroyRangeRequest -> UnsafeDestroyRangeResponse
        = write::unsafe_destroy_range;
    split_region: SplitRegionRequest -> SplitRegionResponse
        = write::split_region;
}

impl RegionRequest for kvrpcpb::PessimisticLockRequest {
    fn context(&self) -> Option<&kvrpcpb::Context> {
        self.context.as_ref()
    }
}
