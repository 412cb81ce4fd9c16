//! The HTTP paths of PD that clients and tools touch (`reference/pd-protocol.md` §11).

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::routing::{get, patch};
use axum::{Json, Router};
use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::{KeyspaceId, Span, StoreId};

use super::{MEMBER_ID, MEMBER_NAME};
use crate::region_proto::VERSION;
use crate::server::Upstream;
use crate::topology::{Region, Store};

/// Regions in one answer if the caller does not say.
const REGIONS_DEFAULT: usize = 16;
/// What callers that split tables ask for at most.
const REGIONS_MAX: usize = 10_240;

#[derive(Clone)]
struct Pd {
    upstream: Arc<Upstream>,
    url: String,
}

pub(crate) fn router(upstream: Arc<Upstream>, url: &str) -> Router {
    let v1 = Router::new()
        .route("/version", get(version))
        .route("/health", get(health))
        .route("/health/", get(health))
        .route("/members", get(members))
        .route("/cluster", get(cluster))
        .route("/status", get(status))
        .route("/config", get(config))
        .route("/config/region-label/rules", patch(accept).post(accept))
        .route("/gc/safepoint", get(gc_safepoint))
        .route("/min-resolved-ts", get(min_resolved_ts))
        .route("/regions/key", get(regions_by_key))
        .route("/region/id/{id}", get(region_by_id))
        .route("/stores", get(stores))
        .route("/store/{id}", get(store));
    let v2 = Router::new()
        .route("/keyspaces", get(keyspaces))
        .route("/keyspaces/{name}", get(keyspace_by_name))
        .route("/keyspaces/id/{id}", get(keyspace_by_id));
    Router::new()
        .nest("/pd/api/v1", v1)
        .nest("/pd/api/v2", v2)
        .with_state(Pd { upstream, url: url.to_owned() })
}

type Answer = Result<Json<Value>, (StatusCode, Json<Value>)>;

fn not_found(what: &str) -> (StatusCode, Json<Value>) {
    (StatusCode::NOT_FOUND, Json(json!(format!("{what} not found"))))
}

async fn accept() -> Json<Value> {
    Json(json!("Update the region label rules successfully."))
}

async fn version() -> Json<Value> {
    Json(json!({ "version": format!("v{VERSION}") }))
}

async fn health(State(pd): State<Pd>) -> Json<Value> {
    let member = json!({
        "name": MEMBER_NAME, "member_id": MEMBER_ID, "client_urls": [pd.url], "health": true,
    });
    Json(json!([member]))
}

async fn members(State(pd): State<Pd>) -> Json<Value> {
    let cluster_id = pd.upstream.step(|world, _| world.cluster_id);
    let member = json!({
        "name": MEMBER_NAME, "member_id": MEMBER_ID, "client_urls": [pd.url], "peer_urls": [pd.url],
        "binary_version": format!("v{VERSION}"),
    });
    let header = json!({ "cluster_id": cluster_id.get() });
    Json(json!({ "header": header, "members": [member], "leader": member, "etcd_leader": member }))
}

async fn cluster(State(pd): State<Pd>) -> Json<Value> {
    let cluster_id = pd.upstream.step(|world, _| world.cluster_id);
    Json(json!({ "id": cluster_id.get(), "max_peer_count": 3 }))
}

async fn status() -> Json<Value> {
    Json(json!({ "version": format!("v{VERSION}"), "build_ts": "", "git_hash": "", "start_timestamp": 0 }))
}

async fn config() -> Json<Value> {
    Json(json!({ "replication": { "max-replicas": 3 }, "schedule": {} }))
}

async fn gc_safepoint(State(pd): State<Pd>) -> Json<Value> {
    Json(pd.upstream.step(|world, now| {
        let state = &world.gc.unified;
        let services: Vec<Value> = state
            .barriers(now.mono)
            .map(|(id, barrier)| {
                let expired_at =
                    barrier.ttl_seconds(now.mono).saturating_add((now.wall_ms / 1_000).cast_signed());
                json!({ "service_id": id, "expired_at": expired_at, "safe_point": barrier.ts.get() })
            })
            .collect();
        json!({
            "service_gc_safe_points": services,
            "gc_safe_point": state.gc_safe_point.get(),
            "min_service_gc_safe_point": state.txn_safe_point.get(),
        })
    }))
}

async fn min_resolved_ts(State(pd): State<Pd>) -> Json<Value> {
    let ts = pd.upstream.step(|world, now| world.timestamp(now, 1));
    Json(json!({ "min_resolved_ts": ts.get(), "is_real_time": true, "persist_interval": "1s" }))
}

fn store_json(store: &Store) -> Value {
    json!({
        "store": {
            "id": store.id.get(), "address": store.address, "version": VERSION, "state_name": "Up",
            "node_state_name": "Serving", "status_address": store.address, "labels": [],
        },
        "status": {},
    })
}

async fn stores(State(pd): State<Pd>) -> Json<Value> {
    let stores: Vec<Value> = pd.upstream.step(|world, _| world.topology.stores().map(store_json).collect());
    Json(json!({ "count": stores.len(), "stores": stores }))
}

async fn store(State(pd): State<Pd>, Path(id): Path<u64>) -> Answer {
    let found = pd.upstream.step(|world, _| world.topology.store(StoreId(id)).map(store_json));
    found.map(Json).ok_or_else(|| not_found("store"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn region_json(region: &Region) -> Value {
    let peer = |peer: &crate::topology::Peer| json!({ "id": peer.id.get(), "store_id": peer.store_id.get() });
    json!({
        "id": region.id.get(),
        "start_key": hex(&region.span.start),
        "end_key": hex(&region.span.end),
        "epoch": { "conf_ver": region.epoch.conf_ver, "version": region.epoch.version },
        "peers": region.peers.iter().map(peer).collect::<Vec<_>>(),
        "leader": peer(&region.leader),
        "written_bytes": 0, "read_bytes": 0, "written_keys": 0, "read_keys": 0,
        "approximate_size": 1, "approximate_keys": 0,
    })
}

async fn region_by_id(State(pd): State<Pd>, Path(id): Path<u64>) -> Answer {
    let id = tidegate_core::RegionId(id);
    let found = pd.upstream.step(|world, _| world.topology.region(id).map(region_json));
    found.map(Json).ok_or_else(|| not_found("region"))
}

async fn regions_by_key(State(pd): State<Pd>, RawQuery(query): RawQuery) -> Json<Value> {
    let query = query.unwrap_or_default();
    let limit = query_value(&query, "limit").and_then(|text| String::from_utf8(text).ok()?.parse().ok());
    let key = |name| Bytes::from(query_value(&query, name).unwrap_or_default());
    let span = Span::new(key("key"), key("end_key"));
    let limit = limit.unwrap_or(REGIONS_DEFAULT).min(REGIONS_MAX);
    let regions: Vec<Value> =
        pd.upstream.step(|world, _| world.topology.regions_in(&span).take(limit).map(region_json).collect());
    Json(json!({ "count": regions.len(), "regions": regions }))
}

/// A value of a query string. Keys are bytes, not text, so the usual decoders do not serve.
fn query_value(query: &str, name: &str) -> Option<Vec<u8>> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    let mut bytes = value.bytes();
    let mut decoded = Vec::with_capacity(value.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            plain => plain,
        });
    }
    Some(decoded)
}

fn keyspace_json(keyspace: &crate::Keyspace) -> Value {
    json!({ "id": keyspace.id.get(), "name": keyspace.name, "state": "ENABLED", "config": {} })
}

async fn keyspaces(State(pd): State<Pd>) -> Json<Value> {
    let all: Vec<Value> = pd.upstream.step(|world, _| world.keyspaces.iter().map(keyspace_json).collect());
    Json(json!({ "keyspaces": all, "next_page_token": "" }))
}

async fn keyspace_by_name(State(pd): State<Pd>, Path(name): Path<String>) -> Answer {
    let find = |world: &crate::world::World| {
        world.keyspaces.iter().find(|keyspace| keyspace.name == name).map(keyspace_json)
    };
    pd.upstream.step(|world, _| find(world)).map(Json).ok_or_else(|| not_found("keyspace"))
}

async fn keyspace_by_id(State(pd): State<Pd>, Path(id): Path<u32>) -> Answer {
    let find = |world: &crate::world::World| {
        world.keyspaces.iter().find(|keyspace| keyspace.id == KeyspaceId(id)).map(keyspace_json)
    };
    pd.upstream.step(|world, _| find(world)).map(Json).ok_or_else(|| not_found("keyspace"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_a_query_are_percent_encoded_bytes() {
        let query = "limit=2&key=t%80%00%FFa&end_key=";
        assert_eq!(query_value(query, "key").as_deref(), Some(&b"t\x80\x00\xffa"[..]));
        assert_eq!(query_value(query, "end_key").as_deref(), Some(&b""[..]));
        assert_eq!(query_value(query, "absent"), None);
        assert_eq!(query_value("key=%8", "key"), None);
    }
}
