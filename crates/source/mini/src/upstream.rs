//! The cluster that runtimes read from.

use tidegate_core::{ClusterId, KeyspaceId};
use tidegate_pd::{PdClient, PdOptions};
use tidegate_puller::kv::SnapshotReader;
use tidegate_puller::{Puller, PullerHandle, PullerOptions};

use crate::error::MiniError;

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct UpstreamOptions {
    /// PD's addresses and time-outs.
    pub pd: PdOptions,
    /// Limits of the change feed.
    pub puller: PullerOptions,
}

impl UpstreamOptions {
    /// The defaults for the PD `endpoints`.
    pub fn new<S: Into<String>>(endpoints: impl IntoIterator<Item = S>) -> Self {
        Self { pd: PdOptions::new(endpoints), puller: PullerOptions::default() }
    }
}

/// A connected cluster: one PD client and one puller. Any number of runtimes can share it; nothing of it is
/// global to the process. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Upstream {
    pub(crate) pd: PdClient,
    pub(crate) puller: PullerHandle,
}

impl Upstream {
    /// Finds the cluster through its PD members.
    ///
    /// # Errors
    /// What PD answers, or that none did.
    pub async fn connect(options: UpstreamOptions) -> Result<Self, MiniError> {
        let pd = PdClient::connect(options.pd).await?;
        let puller = Puller::start(pd.clone(), options.puller);
        Ok(Self { pd, puller })
    }

    /// The PD client, for timestamps and keyspaces.
    pub const fn pd(&self) -> &PdClient {
        &self.pd
    }

    /// The cluster.
    pub fn cluster_id(&self) -> ClusterId {
        self.pd.cluster_id()
    }

    /// Reads raw keys as of a timestamp, for consumers that need a table's rows besides its changes. The GC
    /// barrier of a runtime keeps its acknowledged checkpoint and everything after it readable.
    pub fn snapshot(&self, keyspace: Option<KeyspaceId>) -> SnapshotReader {
        SnapshotReader::new(self.pd.clone(), keyspace)
    }

    /// Closes all connections. Runtimes that still run fail; stop them first.
    pub async fn close(&self) {
        self.puller.stop().await;
    }
}
