//! The stages of a running Tidegate, in the order of the data's path.
//!
//! [`Pipeline::start`] is where to begin reading: it names every stage once. What lies between two of them is a
//! socket: the adapter finds TiKV through PD, and the search system through its gateway's address.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_adapter::{Adapter, AdapterHandle, AdapterOptions};
use tidegate_api::ApiOptions;
use tidegate_core::StartTs;
use tidegate_fabric::{Fabric, FabricOptions};
use tidegate_playground::{Playground, PlaygroundOptions};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::failure::{CliError, Failure};

/// What a pipeline with an embedded upstream and search system is started with.
pub(crate) struct PipelineOptions {
    /// The upstream.
    pub(crate) upstream: PlaygroundOptions,
    /// Where a first start begins.
    pub(crate) start_ts: StartTs,
    /// Tables to follow.
    pub(crate) tables: Vec<String>,
    /// Where all state is kept; `None` keeps it in memory.
    pub(crate) data_dir: Option<PathBuf>,
    /// Where the page is served.
    pub(crate) listener: TcpListener,
}

/// All stages, running.
pub(crate) struct Pipeline {
    pub(crate) playground: Arc<Playground>,
    pub(crate) fabric: Fabric,
    pub(crate) adapter: AdapterHandle,
    pub(crate) gateway: SocketAddr,
    pub(crate) page: SocketAddr,
    stop: CancellationToken,
    servers: Vec<JoinHandle<Result<(), Failure>>>,
}

impl Pipeline {
    /// TiKV ─► (puller ─► decoder ─► mini ─►) adapter ─► fabric ─► page.
    pub(crate) async fn start(options: PipelineOptions) -> Result<Self, Failure> {
        let folder = |part: &str| options.data_dir.as_deref().map(|dir| dir.join(part));
        let stop = CancellationToken::new();

        let playground = Arc::new(Playground::start(options.upstream).await?);
        let fabric = open_fabric(folder("search")).await?;
        let (gateway, gateway_server) = serve_gateway(&fabric).await?;
        let adapter = Adapter::start(AdapterOptions {
            state_dir: folder("adapter"),
            tables: options.tables,
            start_ts: Some(options.start_ts),
            ..AdapterOptions::new(vec![playground.pd_endpoint()], format!("http://{gateway}"))
        })
        .await?;
        let (page, page_server) = serve_page(options.listener, &fabric, stop.clone())?;

        let servers = vec![gateway_server, page_server];
        Ok(Self { playground, fabric, adapter, gateway, page, stop, servers })
    }

    /// Completes when a stage ends by itself, with its error. Nothing else ends a healthy pipeline.
    pub(crate) async fn failed(&mut self) -> Failure {
        let [gateway, page] = self.servers.as_mut_slice() else {
            return CliError::Ended { part: "the pipeline" }.into();
        };
        tokio::select! {
            outcome = self.adapter.wait() => ended("the adapter", outcome.map(drop).map_err(Failure::from)),
            outcome = gateway => ended("the search system", flatten(outcome)),
            outcome = page => ended("the page's server", flatten(outcome)),
        }
    }

    /// Stops every stage, the source first, so that what was read is delivered and what was delivered is durable.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        self.adapter.stop();
        self.adapter.wait().await?;
        self.stop.cancel();
        self.fabric.shutdown().await;
        if let Some(playground) = Arc::into_inner(self.playground) {
            playground.stop().await;
        }
        Ok(())
    }
}

fn ended(part: &'static str, outcome: Result<(), Failure>) -> Failure {
    outcome.err().unwrap_or_else(|| CliError::Ended { part }.into())
}

fn flatten(outcome: Result<Result<(), Failure>, tokio::task::JoinError>) -> Result<(), Failure> {
    outcome.unwrap_or_else(|error| Err(CliError::Unexpected { what: error.to_string() }.into()))
}

/// Opening replays the log and blocks, so it runs aside.
async fn open_fabric(data_dir: Option<PathBuf>) -> Result<Fabric, Failure> {
    let options = FabricOptions { data_dir, ..FabricOptions::default() };
    let opened = tokio::task::spawn_blocking(move || Fabric::open(options)).await;
    Ok(opened.map_err(|error| CliError::Unexpected { what: error.to_string() })??)
}

async fn serve_gateway(fabric: &Fabric) -> Result<(SocketAddr, JoinHandle<Result<(), Failure>>), Failure> {
    let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    let address = listener.local_addr().map_err(CliError::Start)?;
    let fabric = fabric.clone();
    Ok((address, tokio::spawn(async move { Ok(fabric.serve(listener).await?) })))
}

fn serve_page(
    listener: TcpListener,
    fabric: &Fabric,
    stop: CancellationToken,
) -> Result<(SocketAddr, JoinHandle<Result<(), Failure>>), Failure> {
    let address = listener.local_addr().map_err(CliError::Start)?;
    let options = ApiOptions { query: fabric.query(), stop };
    Ok((address, tokio::spawn(async move { Ok(tidegate_api::serve(listener, options).await?) })))
}

/// Listens on `address`, or says whose fault it is that it cannot.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, CliError> {
    TcpListener::bind(address).await.map_err(|source| CliError::Listen { address, source })
}

/// Makes the folder and proves that it can be written to, before anything is started.
pub(crate) fn prepare(folder: &Path) -> Result<(), CliError> {
    let fail = |source| CliError::DataDir { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(fail)?;
    let probe = folder.join(".probe");
    std::fs::write(&probe, b"tidegate").map_err(fail)?;
    std::fs::remove_file(&probe).map_err(fail)
}
