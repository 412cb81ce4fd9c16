//! Catching up with a million rows of 210 bytes over real gRPC, the playground and the puller in processes of
//! their own. Prints rows per second, and CPU seconds and peak memory of the puller's process; run with
//! `cargo bench -p tidegate-puller --bench catch_up`. Takes the number of rows and of runs as arguments.

#![allow(clippy::expect_used, reason = "a bench ends with the first thing that fails")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use bytes::Bytes;
use tidegate_codec::key::{Handle, record_key, table_span};
use tidegate_core::{ClusterId, CommitTs, Op, StartTs, TableId, Ts};
use tidegate_pd::{PdClient, PdOptions};
use tidegate_playground::{Playground, PlaygroundOptions};
use tidegate_puller::{Puller, PullerOptions, SpanEvent, Subscribe};
use tidegate_testkit::{Header, History, Version};

/// Set for the process that serves, to the number of rows.
const SERVE: &str = "TIDEGATE_BENCH_SERVE";
const TABLE: TableId = TableId(100);
const VALUE_BYTES: usize = 191;
const BASE_TS: Ts = Ts::from_parts(1_700_000_000_000, 0);

#[tokio::main]
async fn main() {
    if let Ok(rows) = std::env::var(SERVE) {
        return serve(rows.parse().expect("a number of rows")).await;
    }
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<u64>().ok());
    let (rows, runs) = (numbers.next().unwrap_or(1_000_000), numbers.next().unwrap_or(10));
    let (mut server, endpoint) = start_server(rows);
    for run in 1..=runs {
        let (cpu, begin) = (cpu_seconds(), Instant::now());
        let received = catch_up(&endpoint, rows).await;
        let (cpu, wall) = (cpu_seconds() - cpu, begin.elapsed().as_secs_f64());
        assert_eq!(received, rows);
        let per_second = rows as f64 / wall;
        let peak = peak_mib();
        println!("run {run}: {wall:.2} s, {per_second:.0} rows/s, {cpu:.2} s CPU, {peak} MiB peak");
    }
    drop(server.stdin.take());
    server.wait().expect("the server ends when its input does");
}

/// Begins a process that serves the rows, and waits until it does.
fn start_server(rows: u64) -> (Child, String) {
    let program = std::env::current_exe().expect("this program's path");
    let mut command = Command::new(program);
    command.env(SERVE, rows.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = command.spawn().expect("a second process");
    let output = server.stdout.take().expect("piped");
    let mut endpoint = String::new();
    BufReader::new(output).read_line(&mut endpoint).expect("the server's address");
    (server, endpoint.trim().to_owned())
}

async fn serve(rows: u64) {
    let options =
        PlaygroundOptions { history: Some(history(rows)), regions: 12, ..PlaygroundOptions::default() };
    let playground = Playground::start(options).await.expect("free ports");
    println!("{}", playground.pd_endpoint());
    let until_closed = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    until_closed.await.expect("no panic").expect("readable");
}

fn history(rows: u64) -> History {
    let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
    let version = |n: u64| Version {
        op: Op::Put,
        key: Bytes::from(record_key(None, TABLE, &Handle::Int(i64::try_from(n).expect("few")))),
        value: value.clone(),
        start_ts: StartTs::new(BASE_TS.get() + 2 * n + 1),
        commit_ts: CommitTs::new(BASE_TS.get() + 2 * n + 2),
    };
    let header = Header {
        name: "rows".into(),
        cluster_id: ClusterId(1),
        base_ts: BASE_TS,
        end_ts: Ts::new(BASE_TS.get() + 2 * rows + 2),
    };
    History { header, base: Vec::new(), log: (0..rows).map(version).collect() }
}

async fn catch_up(endpoint: &str, rows: u64) -> u64 {
    let pd = PdClient::connect(PdOptions::new([endpoint])).await.expect("PD answers");
    let puller = Puller::start(pd, PullerOptions::default());
    let mut subscription = puller.subscribe(Subscribe::new(table_span(None, TABLE), BASE_TS.as_start()));
    let (mut received, target) = (0, BASE_TS.get() + 2 * rows + 2);
    while let Some(event) = subscription.next().await {
        match event.expect("no error") {
            SpanEvent::Changes(changes) => received += changes.len() as u64,
            SpanEvent::Resolved(ts) if ts.get() >= target => break,
            SpanEvent::Resolved(_) => {}
        }
    }
    puller.stop().await;
    received
}

/// CPU time of this process, user and system (`/proc/self/stat`, in hundredths of a second).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = stat.rsplit(") ").next().expect("a state follows the name");
    let ticks: u64 =
        after_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

/// The largest resident size of this process so far.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux reports it");
    line.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).next().expect("a number") / 1024
}
