//! The three services of the contract on one port.

mod catalog;
mod convert;
mod ingest;
mod prepare;
mod query;

#[cfg(test)]
pub(crate) use prepare::prepare;

use std::sync::Arc;

use tidegate_contract::limits::BATCH_BYTES_MAX;
use tidegate_proto::searchfabric::v1::catalog_control_service_server::CatalogControlServiceServer;
use tidegate_proto::searchfabric::v1::ingest_gateway_service_server::IngestGatewayServiceServer;
use tidegate_proto::searchfabric::v1::query_service_server::QueryServiceServer;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use crate::engine::Engine;
use crate::error::FabricError;
use crate::query::QueryHandle;

/// The largest message that is read: the largest batch and its frame.
const MESSAGE_BYTES_MAX: usize = BATCH_BYTES_MAX + (64 << 10);

/// Serves until `stop` is cancelled.
pub(crate) async fn serve(
    engine: Arc<Engine>,
    query: QueryHandle,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), FabricError> {
    let ingest = ingest::IngestGateway::new(engine.clone(), stop.clone());
    let catalog = catalog::CatalogControl::new(engine);
    Server::builder()
        .tcp_nodelay(true)
        .add_service(IngestGatewayServiceServer::new(ingest).max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(CatalogControlServiceServer::new(catalog).max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(QueryServiceServer::new(query::Query::new(query)))
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stop.cancelled_owned())
        .await?;
    Ok(())
}
