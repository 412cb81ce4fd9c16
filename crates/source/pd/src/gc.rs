//! GC barriers: names that keep the history after a timestamp from being collected.
//!
//! Newer PD servers have barriers; older ones know only the service safe points, which mean the same
//! (`reference/pd-protocol.md` §8.2). The newer calls are tried first, and `Unimplemented` falls back.

use std::time::Duration;

use bytes::Bytes;
use tidegate_core::{KeyspaceId, Ts};
use tidegate_proto::pdpb;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Code;

use crate::client::accept;
use crate::members::stub;
use crate::{PdClient, PdError};

/// The barrier moves at least this often, so that a long time to live does not keep garbage for hours.
const REFRESH_MAX: Duration = Duration::from_secs(60);
/// Refreshes per time to live: two may fail before the third is too late.
const REFRESHES_PER_TTL: u32 = 3;
/// Pause before a failed refresh is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How PD words the refusal of a barrier that GC has passed.
const BEHIND: &str = "ErrGCBarrierTSBehindTxnSafePoint";

/// Which garbage collection a barrier or a safe point belongs to (`reference/pd-protocol.md` §8.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GcScope {
    /// The one state of a classic cluster and of all keyspaces without their own GC.
    #[default]
    Unified,
    /// The state of one keyspace.
    Keyspace(KeyspaceId),
}

impl GcScope {
    /// The unified state is named by leaving the scope out.
    fn to_proto(self) -> Option<pdpb::KeyspaceScope> {
        use pdpb::keyspace_scope::Keyspace;
        match self {
            Self::Unified => None,
            Self::Keyspace(id) => {
                Some(pdpb::KeyspaceScope { keyspace: Some(Keyspace::KeyspaceId(id.get())) })
            }
        }
    }
}

/// What to hold.
#[derive(Clone, Debug)]
pub struct GcHold {
    /// Whose GC.
    pub scope: GcScope,
    /// The barrier's name, unique per holder; must be neither empty nor `gc_worker`.
    pub id: String,
    /// Snapshots at or above this timestamp stay readable.
    pub ts: Ts,
    /// How long the barrier lives without a refresh; whole seconds, at least one.
    pub ttl: Duration,
}

/// A barrier that is being held: a background task refreshes it well before it expires.
///
/// Dropping it stops the refreshing, so that it ends by itself after its time to live; [`GcBarrier::release`]
/// ends it at once.
#[derive(Debug)]
pub struct GcBarrier {
    keeper: Keeper,
    wanted: watch::Sender<Ts>,
    lost: watch::Receiver<Option<PdError>>,
    _stop: DropGuard,
}

impl GcBarrier {
    /// Sets the barrier and keeps it alive. Fails with [`PdError::BehindSafePoint`] if GC has passed
    /// `hold.ts`.
    pub async fn hold(pd: &PdClient, hold: GcHold) -> Result<Self, PdError> {
        let keeper = Keeper { pd: pd.clone(), scope: hold.scope, id: hold.id, ttl: hold.ttl };
        keeper.set(hold.ts).await?;
        let (wanted, wanted_rx) = watch::channel(hold.ts);
        let (lost_tx, lost) = watch::channel(None);
        let stop = CancellationToken::new();
        let refreshing = refresh(keeper.clone(), wanted_rx, lost_tx);
        tokio::spawn(stop.clone().run_until_cancelled_owned(refreshing));
        Ok(Self { keeper, wanted, lost, _stop: stop.drop_guard() })
    }

    /// Moves the barrier up to `ts` with the next refresh. A smaller timestamp than before is ignored (I8).
    pub fn advance(&self, ts: Ts) {
        self.wanted.send_if_modified(|wanted| {
            let ahead = ts > *wanted;
            *wanted = (*wanted).max(ts);
            ahead
        });
    }

    /// Returns when the barrier could not be kept: it expired while PD was away, or GC passed it. Pending for
    /// as long as all is well; cancel-safe.
    pub async fn lost(&self) -> PdError {
        let mut lost = self.lost.clone();
        let error = lost.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
        error.unwrap_or(PdError::Closed)
    }

    /// Removes the barrier.
    pub async fn release(self) -> Result<(), PdError> {
        let Self { keeper, _stop, .. } = self;
        // Stop first, or a refresh under way could set it again.
        drop(_stop);
        keeper.delete().await
    }
}

/// Refreshes until the barrier is lost.
async fn refresh(keeper: Keeper, wanted: watch::Receiver<Ts>, lost: watch::Sender<Option<PdError>>) {
    let interval = (keeper.ttl / REFRESHES_PER_TTL).min(REFRESH_MAX);
    let mut expires = Instant::now() + keeper.ttl;
    let mut next = Instant::now() + interval;
    loop {
        sleep_until(next).await;
        let ts = *wanted.borrow();
        let asked_at = Instant::now();
        match keeper.set(ts).await {
            Ok(()) => {
                expires = asked_at + keeper.ttl;
                next = asked_at + interval;
            }
            Err(error) if error.is_retryable() && Instant::now() < expires => {
                tracing::warn!(barrier = %keeper.id, %error, "the GC barrier is not refreshed, trying again");
                next = Instant::now() + RETRY_PAUSE.min(interval);
            }
            Err(error) => {
                tracing::error!(barrier = %keeper.id, %error, "the GC barrier is lost");
                lost.send_replace(Some(error));
                return;
            }
        }
    }
}

/// The calls behind a barrier.
#[derive(Clone, Debug)]
struct Keeper {
    pd: PdClient,
    scope: GcScope,
    id: String,
    ttl: Duration,
}

impl Keeper {
    fn ttl_seconds(&self) -> i64 {
        i64::try_from(self.ttl.as_secs().max(1)).unwrap_or(i64::MAX)
    }

    async fn set(&self, ts: Ts) -> Result<(), PdError> {
        let request = pdpb::SetGcBarrierRequest {
            header: self.pd.members().header(),
            keyspace_scope: self.scope.to_proto(),
            barrier_id: self.id.clone(),
            barrier_ts: ts.get(),
            ttl_seconds: self.ttl_seconds(),
        };
        let call = |channel, request| async move { stub(channel).set_gc_barrier(request).await };
        match self.pd.members().call("SetGCBarrier", &request, call).await {
            Err(error) if is_unimplemented(&error) => self.legacy(ts, self.ttl_seconds()).await,
            Err(error) => Err(error),
            Ok(response) => match accept("SetGCBarrier", response.header.as_ref()) {
                Err(PdError::Refused { message, .. }) if message.contains(BEHIND) => {
                    let safe_point = self.pd.safe_point(self.scope).await.unwrap_or(Ts::MAX);
                    Err(PdError::BehindSafePoint { ts, safe_point })
                }
                accepted => accepted,
            },
        }
    }

    async fn delete(&self) -> Result<(), PdError> {
        let request = pdpb::DeleteGcBarrierRequest {
            header: self.pd.members().header(),
            keyspace_scope: self.scope.to_proto(),
            barrier_id: self.id.clone(),
        };
        let call = |channel, request| async move { stub(channel).delete_gc_barrier(request).await };
        match self.pd.members().call("DeleteGCBarrier", &request, call).await {
            // Any timestamp does: with a time to live of zero the old call deletes.
            Err(error) if is_unimplemented(&error) => self.legacy(Ts::MAX, 0).await,
            Err(error) => Err(error),
            Ok(response) => accept("DeleteGCBarrier", response.header.as_ref()),
        }
    }

    /// The old calls. A refusal is no error there: it shows in the minimum that comes back.
    async fn legacy(&self, ts: Ts, ttl: i64) -> Result<(), PdError> {
        let safe_point = match self.scope {
            GcScope::Unified => self.legacy_unified(ts, ttl).await?,
            GcScope::Keyspace(id) => self.legacy_keyspace(id, ts, ttl).await?,
        };
        if safe_point <= ts { Ok(()) } else { Err(PdError::BehindSafePoint { ts, safe_point }) }
    }

    async fn legacy_unified(&self, ts: Ts, ttl: i64) -> Result<Ts, PdError> {
        const CALL: &str = "UpdateServiceGCSafePoint";
        let request = pdpb::UpdateServiceGcSafePointRequest {
            header: self.pd.members().header(),
            service_id: Bytes::from(self.id.clone()),
            ttl,
            safe_point: ts.get(),
        };
        let call =
            |channel, request| async move { stub(channel).update_service_gc_safe_point(request).await };
        let response = self.pd.members().call(CALL, &request, call).await?;
        accept(CALL, response.header.as_ref())?;
        Ok(Ts::new(response.min_safe_point))
    }

    async fn legacy_keyspace(&self, id: KeyspaceId, ts: Ts, ttl: i64) -> Result<Ts, PdError> {
        use pdpb::update_service_safe_point_v2_request::Keyspace;
        const CALL: &str = "UpdateServiceSafePointV2";
        let request = pdpb::UpdateServiceSafePointV2Request {
            header: self.pd.members().header(),
            keyspace: Some(Keyspace::KeyspaceId(id.get())),
            service_id: Bytes::from(self.id.clone()),
            safe_point: ts.get(),
            ttl,
        };
        let call =
            |channel, request| async move { stub(channel).update_service_safe_point_v2(request).await };
        let response = self.pd.members().call(CALL, &request, call).await?;
        accept(CALL, response.header.as_ref())?;
        Ok(Ts::new(response.min_safe_point))
    }
}

impl PdClient {
    /// The transaction safe point of `scope`: snapshots below it must not be read. An old PD that does not
    /// know it answers with its GC safe point.
    pub async fn safe_point(&self, scope: GcScope) -> Result<Ts, PdError> {
        let request = pdpb::GetGcStateRequest {
            header: self.members().header(),
            keyspace_scope: scope.to_proto(),
            exclude_gc_barriers: true,
            include_global_gc_barriers: false,
        };
        let call = |channel, request| async move { stub(channel).get_gc_state(request).await };
        match self.members().call("GetGCState", &request, call).await {
            Err(error) if is_unimplemented(&error) => self.legacy_safe_point(scope).await,
            Err(error) => Err(error),
            Ok(response) => {
                accept("GetGCState", response.header.as_ref())?;
                Ok(Ts::new(response.gc_state.unwrap_or_default().txn_safe_point))
            }
        }
    }

    async fn legacy_safe_point(&self, scope: GcScope) -> Result<Ts, PdError> {
        use pdpb::get_gc_safe_point_v2_request::Keyspace;
        let header = self.members().header();
        let (answered, safe_point) = match scope {
            GcScope::Unified => {
                let request = pdpb::GetGcSafePointRequest { header };
                let call = |channel, request| async move { stub(channel).get_gc_safe_point(request).await };
                let response = self.members().call("GetGCSafePoint", &request, call).await?;
                (response.header, response.safe_point)
            }
            GcScope::Keyspace(id) => {
                let keyspace = Some(Keyspace::KeyspaceId(id.get()));
                let request = pdpb::GetGcSafePointV2Request { header, keyspace };
                let call =
                    |channel, request| async move { stub(channel).get_gc_safe_point_v2(request).await };
                let response = self.members().call("GetGCSafePointV2", &request, call).await?;
                (response.header, response.safe_point)
            }
        };
        accept("GetGCSafePoint", answered.as_ref())?;
        Ok(Ts::new(safe_point))
    }
}

fn is_unimplemented(error: &PdError) -> bool {
    matches!(error, PdError::Rpc { code: Code::Unimplemented, .. })
}
