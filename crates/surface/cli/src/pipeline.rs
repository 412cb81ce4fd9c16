//! The stages of a running Tidegate, in the order of the data's path.
//!
//! [`Pipeline::start`] is where to begin reading: it names every stage once. What lies between two of them
//! is a socket: the adapter finds TiKV through PD, and the search system through its gateway's address.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_adapter::{Adapter, AdapterHandle, AdapterOptions};
use tidegate_core::StartTs;
use tidegate_playground::{Playground, PlaygroundOptions};
use tokio::net::TcpListener;

use crate::failure::{CliError, Failure};
use crate::search_system::{SearchSystem, listen};

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
    pub(crate) adapter: AdapterHandle,
    pub(crate) search: SearchSystem,
    /// Whether the adapter's end was seen already; it can be waited for once.
    adapter_ended: bool,
}

impl Pipeline {
    /// TiKV ─► (puller ─► decoder ─► mini ─►) adapter ─► search ─► page.
    pub(crate) async fn start(options: PipelineOptions) -> Result<Self, Failure> {
        let folder = |part: &str| options.data_dir.as_deref().map(|dir| dir.join(part));
        let gateway = listen("--listen", SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;

        let playground = Arc::new(Playground::start(options.upstream).await?);
        let search = SearchSystem::start(folder("search"), gateway, options.listener).await?;
        let adapter = Adapter::start(AdapterOptions {
            state_dir: folder("adapter"),
            tables: options.tables,
            start_ts: Some(options.start_ts),
            ..AdapterOptions::new(vec![playground.pd_endpoint()], format!("http://{}", search.gateway))
        })
        .await?;

        Ok(Self { playground, adapter, search, adapter_ended: false })
    }

    /// Completes when a stage ends by itself, with its error. Nothing else ends a healthy pipeline.
    pub(crate) async fn failed(&mut self) -> Failure {
        tokio::select! {
            outcome = self.adapter.wait() => {
                self.adapter_ended = true;
                // A search system whose disk is full refuses everything; the disk is what a person must see.
                self.search.storage_failure().unwrap_or_else(|| match outcome {
                    Ok(_) => CliError::Ended { part: "the adapter" }.into(),
                    Err(error) => error.into(),
                })
            }
            failure = self.search.failed() => failure,
        }
    }

    /// Stops every stage, the source first, so that what was read is delivered and what was delivered is
    /// durable.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        self.adapter.stop();
        let drained = if self.adapter_ended { Ok(()) } else { self.adapter.wait().await.map(drop) };
        self.search.stop().await;
        if let Some(playground) = Arc::into_inner(self.playground) {
            playground.stop().await;
        }
        Ok(drained?)
    }
}

/// Makes the folder and proves that it can be written to, before anything is started.
pub(crate) fn prepare(folder: &Path) -> Result<(), CliError> {
    let fail = |source| CliError::DataDir { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(fail)?;
    let probe = folder.join(".probe");
    std::fs::write(&probe, b"tidegate").map_err(fail)?;
    std::fs::remove_file(&probe).map_err(fail)
}
