//! The search system in this process: ingest gateway, catalogue and queries on one port, the page on another.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate_api::ApiOptions;
use tidegate_fabric::{Fabric, FabricError, FabricOptions};
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::args::FabricArgs;
use crate::failure::{CliError, Failure};
use crate::signal::interrupted;

/// A running search system.
pub(crate) struct SearchSystem {
    pub(crate) fabric: Fabric,
    /// Where mutations, catalogue and queries are served over gRPC.
    pub(crate) gateway: SocketAddr,
    /// Where people search.
    pub(crate) page: SocketAddr,
    stop: CancellationToken,
    servers: [JoinHandle<Result<(), Failure>>; 2],
}

impl SearchSystem {
    /// Opens what `data_dir` holds (`None`: nothing, in memory) and serves on both listeners.
    pub(crate) async fn start(
        data_dir: Option<PathBuf>,
        gateway_listener: TcpListener,
        page_listener: TcpListener,
    ) -> Result<Self, Failure> {
        let gateway = gateway_listener.local_addr().map_err(CliError::Start)?;
        let page = page_listener.local_addr().map_err(CliError::Start)?;
        let fabric = open(data_dir).await?;
        let stop = CancellationToken::new();
        let served = fabric.clone();
        let gateway_server = tokio::spawn(async move { Ok(served.serve(gateway_listener).await?) });
        let options = ApiOptions { query: fabric.query(), stop: stop.clone() };
        let page_server = tokio::spawn(async move { Ok(tidegate_api::serve(page_listener, options).await?) });
        Ok(Self { fabric, gateway, page, stop, servers: [gateway_server, page_server] })
    }

    /// Completes when a server ends by itself, with its error.
    pub(crate) async fn failed(&mut self) -> Failure {
        let [gateway, page] = &mut self.servers;
        tokio::select! {
            outcome = gateway => ended("the ingest gateway", outcome),
            outcome = page => ended("the page's server", outcome),
        }
    }

    /// Why storage refuses all writes, if it does.
    pub(crate) fn storage_failure(&self) -> Option<Failure> {
        let reason = self.fabric.query().status().poisoned?;
        Some(FabricError::Poisoned(reason).into())
    }

    /// Stops serving and returns when all files are closed.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.fabric.shutdown().await;
    }
}

fn ended(part: &'static str, outcome: Result<Result<(), Failure>, JoinError>) -> Failure {
    match outcome {
        Ok(Ok(())) => CliError::Ended { part }.into(),
        Ok(Err(failure)) => failure,
        Err(error) => CliError::Unexpected { what: error.to_string() }.into(),
    }
}

/// Opening replays what was not indexed and blocks, so it runs aside.
async fn open(data_dir: Option<PathBuf>) -> Result<Fabric, Failure> {
    let options = FabricOptions { data_dir, ..FabricOptions::default() };
    let opened = tokio::task::spawn_blocking(move || Fabric::open(options)).await;
    Ok(opened.map_err(|error| CliError::Unexpected { what: error.to_string() })??)
}

/// Listens on `address`, or says why not and which `option` chooses another.
pub(crate) async fn listen(option: &'static str, address: SocketAddr) -> Result<TcpListener, CliError> {
    TcpListener::bind(address).await.map_err(|source| CliError::Listen { address, option, source })
}

/// `tidegate fabric`: the search system alone, until it is interrupted.
pub(crate) async fn run(args: FabricArgs) -> Result<ExitCode, Failure> {
    let interrupted = interrupted()?;
    let (gateway, page) = (listen("--gateway", args.gateway).await?, listen("--listen", args.listen).await?);
    let mut system = SearchSystem::start(args.data_dir, gateway, page).await?;
    println!("ingest gateway on {}, page on http://{} (Ctrl-C ends)", system.gateway, system.page);
    let outcome = tokio::select! {
        failure = system.failed() => Err(failure),
        () = interrupted => Ok(ExitCode::SUCCESS),
    };
    system.stop().await;
    outcome
}
