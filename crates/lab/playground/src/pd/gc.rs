//! Safe points and barriers for both generations of callers (`reference/pd-protocol.md` §8).

use bytes::Bytes;
use tidegate_core::{KeyspaceId, Ts};
use tidegate_proto::apipb::KeyspaceIdentity;
use tidegate_proto::pdpb::{
    self, AdvanceTxnSafePointResponse, GcBarrierInfo, GcSafePointV2, GcState as StateProto,
    GlobalGcBarrierInfo, KeyspaceScope,
};
use tonic::Status;

use super::PdError;
use crate::keyspace::{ID_MAX, NULL_ID};
use crate::safepoint::{Barrier, GcState, LegacyAnswer, NATIVE_BR};
use crate::world::{Now, World};

/// Which state a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scope(Option<KeyspaceId>);

impl Scope {
    /// Ids that do not fit a keyspace mean "no keyspace".
    fn of(id: u32) -> Self {
        Self((id <= ID_MAX).then_some(KeyspaceId(id)))
    }

    pub(super) fn keyspace(self) -> Option<KeyspaceId> {
        self.0
    }
}

/// The keyspace of a request stands in a oneof of its own in each message.
macro_rules! scope_from {
    ($($module:ident),*) => {$(
        impl From<Option<&pdpb::$module::Keyspace>> for Scope {
            fn from(keyspace: Option<&pdpb::$module::Keyspace>) -> Self {
                match keyspace {
                    None => Self(None),
                    Some(pdpb::$module::Keyspace::KeyspaceId(id)) => Self::of(*id),
                    Some(pdpb::$module::Keyspace::KeyspaceIdentity(KeyspaceIdentity { keyspace_id, .. })) => {
                        Self::of(*keyspace_id)
                    }
                }
            }
        }
    )*};
}
scope_from!(
    keyspace_scope,
    get_gc_safe_point_v2_request,
    update_gc_safe_point_v2_request,
    update_service_safe_point_v2_request
);

impl From<Option<&KeyspaceScope>> for Scope {
    fn from(scope: Option<&KeyspaceScope>) -> Self {
        Self::from(scope.and_then(|scope| scope.keyspace.as_ref()))
    }
}

/// A keyspace without safe points of its own shares the unified ones.
pub(super) fn state(world: &World, scope: Scope) -> &GcState {
    scope.0.and_then(|id| world.gc.own.get(&id)).unwrap_or(&world.gc.unified)
}

pub(super) fn state_mut(world: &mut World, scope: Scope) -> &mut GcState {
    let gc = &mut world.gc;
    scope.0.and_then(|id| gc.own.get_mut(&id)).unwrap_or(&mut gc.unified)
}

pub(super) fn barrier_proto(id: &str, barrier: &Barrier, now: Now) -> GcBarrierInfo {
    GcBarrierInfo {
        barrier_id: id.to_owned(),
        barrier_ts: barrier.ts.get(),
        ttl_seconds: barrier.ttl_seconds(now.mono),
    }
}

pub(super) fn global_proto(id: &str, barrier: &Barrier, now: Now) -> GlobalGcBarrierInfo {
    let GcBarrierInfo { barrier_id, barrier_ts, ttl_seconds } = barrier_proto(id, barrier, now);
    GlobalGcBarrierInfo { barrier_id, barrier_ts, ttl_seconds }
}

pub(super) fn global_barriers(world: &World, now: Now) -> Vec<GlobalGcBarrierInfo> {
    world.gc.global.barriers(now.mono).map(|(id, barrier)| global_proto(id, barrier, now)).collect()
}

fn scope_proto(id: u32) -> KeyspaceScope {
    KeyspaceScope { keyspace: Some(pdpb::keyspace_scope::Keyspace::KeyspaceId(id)) }
}

pub(super) fn state_proto(world: &World, scope: Scope, with_barriers: bool, now: Now) -> StateProto {
    let own = scope.0.filter(|id| world.gc.own.contains_key(id));
    let state = state(world, scope);
    let barriers = state.barriers(now.mono).map(|(id, barrier)| barrier_proto(id, barrier, now));
    StateProto {
        keyspace_scope: Some(scope_proto(scope.0.map_or(NULL_ID, KeyspaceId::get))),
        is_keyspace_level_gc: own.is_some(),
        txn_safe_point: state.txn_safe_point.get(),
        gc_safe_point: state.gc_safe_point.get(),
        gc_barriers: if with_barriers { barriers.collect() } else { Vec::new() },
    }
}

pub(super) fn all_states(world: &World, with_barriers: bool, now: Now) -> Vec<StateProto> {
    let keyspaces = world.keyspaces.iter().map(|keyspace| Scope(Some(keyspace.id)));
    let scopes = std::iter::once(Scope(None)).chain(keyspaces);
    scopes.map(|scope| state_proto(world, scope, with_barriers, now)).collect()
}

pub(super) fn all_safe_points(world: &World) -> Vec<GcSafePointV2> {
    let safe_point = |(id, state): (&KeyspaceId, &GcState)| GcSafePointV2 {
        keyspace: Some(pdpb::gc_safe_point_v2::Keyspace::KeyspaceId(id.get())),
        gc_safe_point: state.gc_safe_point.get(),
    };
    world.gc.own.iter().map(safe_point).collect()
}

/// The old call: a lower target changes nothing and is no error.
pub(super) fn update_safe_point(
    world: &mut World,
    keyspace: Option<KeyspaceId>,
    target: Ts,
) -> Result<Ts, PdError> {
    let current = state(world, Scope(keyspace)).gc_safe_point;
    if target <= current {
        return Ok(current);
    }
    advance_gc(world, keyspace, target)?;
    Ok(target)
}

/// Returns the safe point before. Versions that nobody may read any more are dropped.
pub(super) fn advance_gc(world: &mut World, keyspace: Option<KeyspaceId>, target: Ts) -> Result<Ts, PdError> {
    let old = state_mut(world, Scope(keyspace)).advance_gc(target).map_err(PdError::unknown)?;
    // Keyspaces of their own share the engine with the others: what they drop is not told apart yet, so
    // only the unified safe point drops anything.
    if !keyspace.is_some_and(|id| world.gc.own.contains_key(&id)) {
        world.engine.collect_garbage(target);
    }
    Ok(old)
}

pub(super) fn advance_txn(
    world: &mut World,
    scope: Scope,
    target: Ts,
    now: Now,
) -> Result<AdvanceTxnSafePointResponse, PdError> {
    let global = world.gc.global.clone();
    let advanced =
        state_mut(world, scope).advance_txn(target, &global, now.mono).map_err(PdError::unknown)?;
    Ok(AdvanceTxnSafePointResponse {
        header: None,
        old_txn_safe_point: advanced.old.get(),
        new_txn_safe_point: advanced.new.get(),
        blocker_description: advanced.blocker.map(|id| format!("GCBarrier {id:?}")).unwrap_or_default(),
    })
}

pub(super) fn set_global(
    world: &mut World,
    id: &str,
    ts: Ts,
    ttl_seconds: i64,
    now: Now,
) -> Result<GlobalGcBarrierInfo, PdError> {
    let highest = highest_txn_safe_point(world);
    if ts < highest {
        let refused = crate::safepoint::GcError::BehindSafePoint { barrier: ts, safe_point: highest };
        return Err(PdError::unknown(refused));
    }
    let barrier = world.gc.global.set_barrier(id, ts, ttl_seconds, now.mono).map_err(PdError::unknown)?;
    Ok(global_proto(id, &barrier, now))
}

fn highest_txn_safe_point(world: &World) -> Ts {
    let own = world.gc.own.values().map(|state| state.txn_safe_point).max().unwrap_or_default();
    own.max(world.gc.unified.txn_safe_point)
}

/// The service safe point call of all versions before the barriers.
pub(super) fn legacy(
    world: &mut World,
    keyspace: Option<KeyspaceId>,
    service: &Bytes,
    ttl_seconds: i64,
    ts: Ts,
    now: Now,
) -> Result<LegacyAnswer, Status> {
    let service = std::str::from_utf8(service).map_err(|_| Status::unknown("service id is not text"))?;
    if service == NATIVE_BR {
        if ttl_seconds > 0 {
            // Below a safe point it is not stored, which the answer shows.
            drop(set_global(world, service, ts, ttl_seconds, now));
        } else {
            world.gc.global.delete_barrier(service);
        }
        let min_safe_point = highest_txn_safe_point(world);
        let service = crate::safepoint::GC_WORKER.to_owned();
        return Ok(LegacyAnswer { service, ttl_seconds: i64::MAX, min_safe_point });
    }
    let global = world.gc.global.clone();
    state_mut(world, Scope(keyspace))
        .legacy(service, ttl_seconds, ts, &global, now.mono)
        .map_err(|error| Status::unknown(error.to_string()))
}
