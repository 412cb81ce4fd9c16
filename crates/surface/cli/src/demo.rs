//! `tidegate demo`: recorded data through the whole pipeline, then small live changes, a page, and a
//! comparison of every document with what the upstream holds.

mod compare;
mod document;
mod examples;
mod journal;
mod live;
mod progress;
mod upstream;

use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tidegate_adapter::{AdapterState, AdapterStatus};
use tidegate_core::Ts;
use tidegate_fabric::QueryHandle;
use tidegate_fabric::status::Status;
use tidegate_pd::{PdClient, PdOptions};
use tidegate_playground::PlaygroundOptions;
use tidegate_proto::searchfabric::v1 as sf;
use tidegate_proto::searchfabric::v1::catalog_control_service_client::CatalogControlServiceClient;
use tidegate_proto::searchfabric::v1::query_service_client::QueryServiceClient;
use tidegate_puller::kv::SnapshotReader;
use tidegate_testkit::{History, data};
use tokio::sync::watch;
use tokio::time::{interval, timeout};
use tonic::transport::{Channel, Endpoint};

use crate::args::DemoArgs;
use crate::failure::{CliError, Failure};
use crate::pipeline::{Pipeline, PipelineOptions, prepare};
use crate::search_system::listen;
use crate::signal::interrupted;
use compare::Comparison;
use journal::Journal;
use live::Writer;
use progress::Progress;

/// The database of the demo's history, and its table with vectors.
const SCHEMA: &str = "demo";
const EMOJI: &str = "demo.emoji";
/// Live transactions that are made before the examples, so that these show fresh rows.
const FIRST_CHANGES: usize = 12;
/// Often enough that the page lives, seldom enough that one can read it.
const CHANGE_PERIOD: Duration = Duration::from_millis(400);
/// Catching up takes about a second; a machine that needs longer than this has another problem.
const CATCH_UP_MAX: Duration = Duration::from_secs(120);
/// A reader that waits for a timestamp waits this long.
const FRESHNESS_WAIT_MS: u32 = 30_000;

/// Runs the command.
pub(crate) async fn run(args: DemoArgs) -> Result<ExitCode, Failure> {
    let interrupted = interrupted()?;
    if let Some(folder) = &args.data_dir {
        prepare(folder)?;
    }
    let listener = listen("--listen", args.listen).await?;
    let mut history = data::demo_history()?;
    let journal = args.data_dir.as_deref().map(|dir| Journal::open(&dir.join("upstream"))).transpose()?;
    let (journal, recovered) = journal.unzip();
    let recovered = recovered.unwrap_or_default();
    recovered.extend(&mut history);
    let (rows, end) = (live::row_versions(&history), history.header.end_ts);
    let mut pipeline = Pipeline::start(PipelineOptions {
        start_ts: history.header.base_ts.as_start(),
        upstream: upstream_options(&args, history),
        tables: vec![format!("{SCHEMA}.*")],
        data_dir: args.data_dir.clone(),
        listener,
    })
    .await?;
    let mut demo = Demo::connect(&pipeline, journal).await?;
    demo.writer.finish(recovered.in_doubt)?;
    let outcome = tokio::select! {
        outcome = demo.play(args.once, rows, end, interrupted) => outcome,
        failure = pipeline.failed() => Err(failure),
    };
    // Why the show ended matters more than what stopping adds to it.
    let stopped = pipeline.stop().await;
    outcome.and_then(|code| stopped.map(|()| code))
}

fn upstream_options(args: &DemoArgs, history: History) -> PlaygroundOptions {
    PlaygroundOptions {
        live_after: args.speed.map(|_| history.header.base_ts),
        speed: args.speed.unwrap_or(1.0),
        history: Some(history),
        ..PlaygroundOptions::default()
    }
}

/// The demo's own clients of both ends of the pipeline.
struct Demo {
    reader: SnapshotReader,
    pd: PdClient,
    index: Index,
    fabric: QueryHandle,
    adapter: watch::Receiver<Arc<AdapterStatus>>,
    writer: Writer,
    page: SocketAddr,
}

impl Demo {
    async fn connect(pipeline: &Pipeline, journal: Option<Journal>) -> Result<Self, Failure> {
        let pd = PdClient::connect(PdOptions::new([pipeline.playground.pd_endpoint()])).await?;
        let reader = SnapshotReader::new(pd.clone(), None);
        let index = Index::connect(pipeline.search.gateway).await?;
        let writer = Writer::new(pipeline.playground.clone(), reader.clone(), journal);
        let (fabric, adapter) = (pipeline.search.fabric.query(), pipeline.adapter.watch_status());
        Ok(Self { reader, pd, index, fabric, adapter, writer, page: pipeline.search.page })
    }

    /// The whole show. Ends after the first comparison with `once`, else when interrupted, with another one.
    async fn play(
        &mut self,
        once: bool,
        rows: u64,
        end: Ts,
        interrupted: impl Future<Output = ()>,
    ) -> Result<ExitCode, Failure> {
        tokio::pin!(interrupted);
        let equal = tokio::select! {
            equal = self.first_part(rows, end) => equal?,
            () = &mut interrupted => return Ok(ExitCode::SUCCESS),
        };
        if once {
            return Ok(exit_code(equal));
        }
        println!("\nsearch on http://{} while rows change (Ctrl-C ends)", self.page);
        let mut changes = interval(CHANGE_PERIOD);
        loop {
            tokio::select! {
                _ = changes.tick() => self.writer.change(self.pd.tso().await?).await?,
                () = &mut interrupted => break,
            }
        }
        println!();
        Ok(exit_code(self.compare().await?))
    }

    /// Catches up, changes a few rows, searches, compares.
    async fn first_part(&mut self, rows: u64, end: Ts) -> Result<bool, Failure> {
        self.say_where_from().await;
        let caught_up = timeout(CATCH_UP_MAX, self.catch_up(rows, end)).await;
        caught_up.unwrap_or_else(|_| {
            Err(CliError::TooSlow { what: "catching up", seconds: CATCH_UP_MAX.as_secs() }.into())
        })?;
        for _ in 0..FIRST_CHANGES {
            self.writer.change(self.pd.tso().await?).await?;
        }
        self.index.wait_for(EMOJI, self.pd.tso().await?).await?;
        println!("live: {FIRST_CHANGES} transactions committed and searchable");
        examples::show(&mut self.index).await?;
        println!();
        self.compare().await
    }

    /// Tells a start from a checkpoint from a first one.
    async fn say_where_from(&mut self) {
        let running = self.adapter.wait_for(|status| status.state != AdapterState::Starting).await;
        let Ok(checkpoint) = running.map(|status| Ts::new(status.checkpoint_ts)) else { return };
        let documents: u64 = self.fabric.status().collections.iter().map(|one| one.documents).sum();
        if documents > 0 {
            println!("resuming from checkpoint {checkpoint}, with {documents} documents in the index");
        }
    }

    /// Shows progress until every table of the recorded end is there, complete up to that end.
    async fn catch_up(&mut self, rows: u64, end: Ts) -> Result<(), Failure> {
        let mut progress = Progress::new(rows);
        let mut ticks = interval(progress::PERIOD);
        loop {
            ticks.tick().await;
            let status = self.fabric.status();
            let open: Vec<_> = status.collections.iter().filter(|one| one.dropped_at.is_none()).collect();
            let safe_ts = open.iter().map(|one| one.freshness.safe_ts).min().unwrap_or_default();
            progress.show(status.counters.rows_applied, safe_ts);
            if safe_ts.ts() >= end && self.all_there(&status, end).await? {
                progress.finish(status.counters.rows_applied);
                return Ok(());
            }
        }
    }

    async fn all_there(&self, status: &Status, end: Ts) -> Result<bool, Failure> {
        let tables = upstream::tables(&self.reader, SCHEMA, end).await?;
        let there = |table: &upstream::Table| {
            status.collections.iter().any(|one| one.name == table.name && one.freshness.safe_ts.ts() >= end)
        };
        Ok(tables.iter().all(there))
    }

    /// Compares and prints; nothing is committed meanwhile, because the demo is the only writer.
    async fn compare(&mut self) -> Result<bool, Failure> {
        let now = self.pd.tso().await?;
        let comparison = compare::compare(&self.reader, &mut self.index, now).await?;
        report(&comparison);
        Ok(comparison.is_equal())
    }
}

fn report(comparison: &Comparison) {
    let Comparison { documents, collections, safe_ts, index_digest, upstream_digest, .. } = comparison;
    comparison.shown.iter().for_each(|line| println!("  {line}"));
    println!("compared: {documents} documents in {collections} collections, at safe_ts {safe_ts}");
    println!("  index    {index_digest}");
    println!("  upstream {upstream_digest}");
    if comparison.is_equal() {
        println!("equal: the index holds exactly what the upstream holds");
    } else {
        println!("different: {} differences", comparison.differences);
    }
}

fn exit_code(equal: bool) -> ExitCode {
    if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Clients of the search system, over gRPC like any other.
struct Index {
    query: QueryServiceClient<Channel>,
    catalog: CatalogControlServiceClient<Channel>,
}

impl Index {
    async fn connect(gateway: SocketAddr) -> Result<Self, Failure> {
        let unexpected = |error: tonic::transport::Error| CliError::Unexpected { what: error.to_string() };
        let endpoint = Endpoint::from_shared(format!("http://{gateway}")).map_err(unexpected)?;
        let channel = endpoint.connect().await.map_err(unexpected)?;
        Ok(Self {
            query: QueryServiceClient::new(channel.clone()),
            catalog: CatalogControlServiceClient::new(channel),
        })
    }

    /// Waits until everything committed at or below `ts` can be found in `collection`.
    async fn wait_for(&mut self, collection: &str, ts: Ts) -> Result<(), Failure> {
        let request = sf::GetFreshnessRequest {
            collection: Some(selector(collection)),
            consistency: Some(freshness_wait(ts)),
        };
        self.query.get_freshness(request).await.map_err(refused("GetFreshness"))?;
        Ok(())
    }
}

fn selector(name: &str) -> sf::CollectionSelector {
    let collection = Some(sf::collection_selector::Collection::Name(name.to_owned()));
    sf::CollectionSelector { namespace: String::new(), collection }
}

fn freshness_wait(ts: Ts) -> sf::ReadConsistency {
    sf::ReadConsistency {
        bound: Some(sf::read_consistency::Bound::ReadAtLeastTs(ts.get())),
        wait_ms_max: FRESHNESS_WAIT_MS,
    }
}

fn refused(call: &'static str) -> impl Fn(tonic::Status) -> Failure {
    move |status| CliError::Refused { call, source: Box::new(status) }.into()
}
