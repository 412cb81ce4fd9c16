//! Listening: HTTP/1.1 and HTTP/2 on one port, and an end that breaks connections as a killed process does.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::PlaygroundError;

/// As TiKV configures its own server (`reference/tikv-kv-protocol.md` §1).
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
const STREAMS_MAX: u32 = 1_024;
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);
/// After a failed accept (out of file descriptors, mostly) a pause lets connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections beyond it are refused by waiting in the operating system's queue.
const CONNECTIONS_MAX: usize = 4_096;

/// Opens a port.
pub(crate) async fn bind(address: SocketAddr, service: &str) -> Result<TcpListener, PlaygroundError> {
    TcpListener::bind(address).await.map_err(|source| PlaygroundError::Listen {
        address,
        service: service.to_owned(),
        source,
    })
}

/// A running listener.
pub(crate) struct Server {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) fn start(listener: TcpListener, router: Router, stop: CancellationToken) -> Self {
        let task = tokio::spawn(accept(listener, router, stop.clone()));
        Self { stop, task }
    }

    /// Closes the port and breaks all connections at once.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a listener ended badly");
        }
    }
}

async fn accept(listener: TcpListener, router: Router, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((socket, _)) => {
                    connections.spawn(serve(socket, router.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    connections.shutdown().await;
}

async fn serve(socket: TcpStream, router: Router) {
    // Small messages must not wait for each other; failing to say so only costs speed.
    drop(socket.set_nodelay(true));
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    let service = TowerToHyperService::new(router);
    if let Err(error) = builder.serve_connection(TokioIo::new(socket), service).await {
        // Clients break connections as they please.
        tracing::debug!(%error, "a connection ended");
    }
}
