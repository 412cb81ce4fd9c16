//! A bank under fire: eight writers of a public client move money between accounts in many regions while
//! regions split, merge and move, streams break and a store is killed and comes back. At every resolved
//! timestamp that is looked at, the change feed's reader holds the whole sum.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use tidegate_core::{Op, StoreId, Ts};
use tidegate_playground::{FeedFault, Playground, PlaygroundOptions, Write};
use tikv_client::transaction::ResolveLocksOptions;
use tikv_client::{CheckLevel, Timestamp, TimestampExt, TransactionClient, TransactionOptions};

use crate::feed_client::FeedClient;
use crate::moved_clock::MovedClock;
use crate::start;

const ACCOUNTS: usize = 200;
const OPENING: i64 = 100;
const WRITERS: u64 = 8;
const REGIONS: usize = 50;
const ROUNDS: usize = 60;
/// The upstream's time runs this much faster, so that locks left behind (3 to 20 seconds to live) do not hold
/// the feed back for as long.
const CLOCK_SPEED: u64 = 20;
/// A transfer takes milliseconds; one that is older than this is dead.
const LIVE_MS_MAX: u64 = 1_500;
/// After it a call of the client is given up.
const PATIENCE: Duration = Duration::from_millis(1_000);
/// Printed by a failing test through its name and this constant; change it to look elsewhere.
const SEED: u64 = 20_260_718;

fn account(n: usize) -> String {
    format!("account{n:04}")
}

async fn bank() -> Arc<Playground> {
    let clock = MovedClock::new(CLOCK_SPEED);
    let playground = start(PlaygroundOptions { clock, ..Default::default() }).await;
    for n in 1..REGIONS {
        playground.split(account(n * ACCOUNTS / REGIONS).as_bytes()).expect("an inner key");
    }
    let opening = (0..ACCOUNTS).map(|n| Write::put(account(n), OPENING.to_string()));
    playground.commit(opening.collect()).expect("nobody else writes");
    Arc::new(playground)
}

/// Moves money until told to stop. Refused and failed transfers are given up; the sum must hold all the same.
/// So is one that takes too long, with its client: this client waits without end now and then when a store
/// dies under it.
async fn writer(pd: String, seed: u64, stop: Arc<AtomicBool>, transfers: Arc<AtomicUsize>) {
    let mut rng = Rng::with_seed(seed);
    while !stop.load(Ordering::Relaxed) {
        let Ok(client) = TransactionClient::new(vec![pd.clone()]).await else { continue };
        while !stop.load(Ordering::Relaxed) {
            let (from, to) = (account(rng.usize(..ACCOUNTS)), account(rng.usize(..ACCOUNTS)));
            if from == to {
                continue;
            }
            match tokio::time::timeout(PATIENCE, transfer(&client, &mut rng, from, to)).await {
                Ok(Ok(())) => {
                    transfers.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Err(_)) => {}
                Err(_) => break,
            }
        }
    }
}

/// Resolves locks that are older than any live transaction, as a cluster's GC worker does. The writers cannot
/// be left to it: version 0.4 of this client never resolves a lock whose primary was not written, because it
/// does not recognise "transaction not found" inside a list of errors.
async fn janitor(playground: Arc<Playground>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let Ok(client) = TransactionClient::new(vec![playground.pd_endpoint()]).await else { continue };
        let now_ms = playground.now().physical_ms();
        let oldest_live = Ts::from_parts(now_ms - LIVE_MS_MAX * CLOCK_SPEED, 0);
        let safepoint = Timestamp::from_version(oldest_live.get());
        // Regions move away under it; it comes again.
        let cleanup = client.cleanup_locks(.., &safepoint, ResolveLocksOptions::default());
        drop(tokio::time::timeout(PATIENCE, cleanup).await);
    }
}

async fn transfer(
    client: &TransactionClient,
    rng: &mut Rng,
    from: String,
    to: String,
) -> Result<(), tikv_client::Error> {
    let options = match rng.u8(..4) {
        0 => TransactionOptions::new_optimistic(),
        1 => TransactionOptions::new_optimistic().use_async_commit(),
        2 => TransactionOptions::new_pessimistic(),
        _ => TransactionOptions::new_optimistic().try_one_pc(),
    };
    let mut txn = client.begin_with_options(options.drop_check(CheckLevel::None)).await?;
    let amount = rng.i64(1..10);
    for (key, change) in [(from, -amount), (to, amount)] {
        let balance =
            txn.get_for_update(key.clone()).await?.map(|value| balance_of(&value)).unwrap_or_default();
        txn.put(key, (balance + change).to_string()).await?;
    }
    let outcome = txn.commit().await;
    if outcome.is_err() {
        // Leaves no lock behind where that is possible; what stays expires.
        drop(txn.rollback().await);
    }
    outcome.map(drop)
}

fn balance_of(value: &[u8]) -> i64 {
    std::str::from_utf8(value).expect("text").parse().expect("a number")
}

/// One random blow.
async fn disturb(playground: &Playground, rng: &mut Rng, down: &mut Option<StoreId>) {
    let regions = playground.regions();
    let n = rng.usize(..regions.len() - 1);
    let store = StoreId(rng.u64(1..=3));
    match rng.u8(..12) {
        0..=2 => drop(playground.split(account(rng.usize(..ACCOUNTS)).as_bytes())),
        3..=4 if regions.len() > REGIONS => {
            playground.merge(regions[n].id, regions[n + 1].id).expect("neighbours");
        }
        5..=7 => drop(playground.move_leader(regions[n].id, store)),
        8 => drop(playground.drop_streams(store)),
        9 => playground.inject_feed_error(regions[n].id, FeedFault::ALL[rng.usize(..FeedFault::ALL.len())]),
        10 if down.is_none() => {
            playground.stop_store(store).await.expect("it runs");
            *down = Some(store);
        }
        _ => {
            if let Some(store) = down.take() {
                playground.restart_store(store).await.expect("its port is free");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sum_holds_at_every_resolved_timestamp_while_everything_moves() {
    let playground = bank().await;
    let mut feed = FeedClient::connect(&playground.pd_endpoint(), Ts::ZERO).await;
    let (stop, transfers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| {
            let (stop, transfers) = (Arc::clone(&stop), Arc::clone(&transfers));
            tokio::spawn(writer(playground.pd_endpoint(), SEED + n, stop, transfers))
        })
        .collect();
    let janitor = tokio::spawn(janitor(Arc::clone(&playground), Arc::clone(&stop)));
    let (mut rng, mut down, mut looked_at) = (Rng::with_seed(SEED), None, Vec::new());
    for round in 0..ROUNDS {
        disturb(&playground, &mut rng, &mut down).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        if round % 10 == 9 {
            // A little in the past: locks of live transactions hold back what is newer.
            let until =
                feed.resolved().max(Ts::from_parts(playground.now().physical_ms() - 200 * CLOCK_SPEED, 0));
            feed.read_to(until).await;
            looked_at.push(feed.resolved());
        }
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.expect("no panic");
    }
    janitor.await.expect("no panic");
    if let Some(store) = down {
        playground.restart_store(store).await.expect("its port is free");
    }
    assert!(transfers.load(Ordering::Relaxed) > 50, "{transfers:?} transfers");
    assert!(feed.failures > 10, "{} failures", feed.failures);
    for ts in looked_at {
        check_sum(&feed, &playground, ts);
    }
}

/// The feed's reader and a snapshot read agree at `ts`, and hold the whole sum.
fn check_sum(feed: &FeedClient, playground: &Playground, ts: Ts) {
    let mut balances: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    for version in feed.committed(ts) {
        assert_eq!(version.op, Op::Put);
        balances.insert(version.key, version.value);
    }
    let sum: i64 = balances.values().map(|value| balance_of(value)).sum();
    let opening = i64::try_from(ACCOUNTS).expect("few") * OPENING;
    assert_eq!(sum, opening, "seed {SEED}, at {ts}");
    let snapshot = playground.scan(b"account", b"", ts, usize::MAX);
    assert_eq!(snapshot, balances.into_iter().collect::<Vec<_>>(), "seed {SEED}, at {ts}");
}
