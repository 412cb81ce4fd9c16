//! The rim towards the Search Fabric: one mutation stream and the catalogue, over gRPC.

use std::collections::BTreeMap;

use tidegate_contract::error::from_status;
use tidegate_contract::{Breach, SfErrorCode};
use tidegate_core::{ErrorClass, ResolvedTs};
use tidegate_proto::searchfabric::v1::catalog_control_service_client::CatalogControlServiceClient;
use tidegate_proto::searchfabric::v1::ingest_gateway_service_client::IngestGatewayServiceClient;
use tidegate_proto::searchfabric::v1::{
    ClientKind, CollectionRef, GetStreamPositionsRequest, ListCollectionsRequest, MutationAck, MutationBatch,
    RequestMeta,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::collection::CatalogCall;
use crate::error::AdapterError;
use crate::pipeline::{CatalogAnswer, Known};
use crate::stream::Held;

/// Answers larger than this are refused: a catalogue of ten thousand collections with full definitions fits.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// What the gateway says.
#[derive(Debug)]
pub(crate) enum GatewayEvent {
    /// An answer on stream number `.0`.
    Ack(u64, Box<MutationAck>),
    /// Stream number `.0` ended.
    Down(u64, Status),
    /// The catalogue's answer about a collection.
    Catalog(usize, CatalogAnswer),
}

/// What the gateway holds at a start.
#[derive(Debug)]
pub(crate) struct Position {
    /// Progress by collection and source partition.
    pub(crate) held: BTreeMap<(String, String), Held>,
    /// The largest epoch seen.
    pub(crate) epoch: u64,
}

/// A connection to the Search Fabric. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    address: String,
    channel: Channel,
    events: mpsc::Sender<GatewayEvent>,
}

impl Gateway {
    /// Connects to `address`; what is heard goes to `events`.
    pub(crate) async fn connect(
        address: &str,
        events: mpsc::Sender<GatewayEvent>,
    ) -> Result<Self, AdapterError> {
        let uri = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let connect = |e: tonic::transport::Error| AdapterError::Connect {
            address: address.to_owned(),
            source: Status::from_error(Box::new(e)),
        };
        let endpoint = Endpoint::from_shared(uri).map_err(connect)?.tcp_nodelay(true);
        let channel = endpoint.connect().await.map_err(connect)?;
        Ok(Self { address: address.to_owned(), channel, events })
    }

    fn catalog(&self) -> CatalogControlServiceClient<Channel> {
        CatalogControlServiceClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    fn ingest(&self) -> IngestGatewayServiceClient<Channel> {
        IngestGatewayServiceClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// What a status means: a refusal for good, or trouble on the way.
    pub(crate) fn error(&self, what: &str, status: Status) -> AdapterError {
        match from_status(&status) {
            Some(breach) if !is_retryable(&breach) => AdapterError::Refused { what: what.to_owned(), breach },
            _ => AdapterError::Connect { address: self.address.clone(), source: status },
        }
    }

    /// The collections of `namespace`, dropped ones too.
    pub(crate) async fn collections(&self, namespace: &str) -> Result<Vec<Known>, AdapterError> {
        let request = ListCollectionsRequest { namespace: namespace.to_owned(), include_dropped: true };
        let answer = self.catalog().list_collections(request).await;
        let answer = answer.map_err(|status| self.error("the list of collections", status))?.into_inner();
        let refused = |breach| AdapterError::Refused { what: "the list of collections".to_owned(), breach };
        answer.collections.into_iter().map(|sent| Known::new(sent).map_err(refused)).collect()
    }

    /// What the gateway holds of the namespace's partitions.
    pub(crate) async fn positions(&self, namespace: &str, client_id: &str) -> Result<Position, AdapterError> {
        let request = GetStreamPositionsRequest {
            meta: Some(RequestMeta {
                client_id: client_id.to_owned(),
                client_kind: ClientKind::TidbCdcAdapter.into(),
                idempotency_key: "positions".to_owned(),
            }),
            collection: Some(CollectionRef { namespace: namespace.to_owned(), collection_id: String::new() }),
        };
        let answer = self.ingest().get_stream_positions(request).await;
        let answer = answer.map_err(|status| self.error("the stream positions", status))?.into_inner();
        let mut position = Position { held: BTreeMap::new(), epoch: 0 };
        for sent in answer.positions {
            let Some(cursor) = sent.acked_cursor else { continue };
            position.epoch = position.epoch.max(cursor.source_epoch);
            let held = Held { resolved: ResolvedTs::new(sent.acked_resolved_ts) };
            let collection = sent.collection.unwrap_or_default().collection_id;
            position.held.insert((collection, cursor.source_partition), held);
        }
        Ok(position)
    }

    /// Opens the mutation stream number `number`. At most `in_flight_max` batches are unanswered, so as many
    /// fit into the channel. The end of the stream, also a failed opening, comes as [`GatewayEvent::Down`].
    pub(crate) fn open_stream(&self, number: u64, in_flight_max: usize) -> mpsc::Sender<MutationBatch> {
        let (batches, outgoing) = mpsc::channel(in_flight_max.max(1));
        let (mut client, events) = (self.ingest(), self.events.clone());
        tokio::spawn(async move {
            let status = read_stream(&mut client, number, outgoing, &events).await;
            // A closed receiver means that nobody needs to know any more.
            let _ = events.send(GatewayEvent::Down(number, status)).await;
        });
        batches
    }

    /// Makes a catalogue call; the answer comes as [`GatewayEvent::Catalog`].
    pub(crate) fn call(&self, index: usize, call: CatalogCall) {
        let (mut client, events) = (self.catalog(), self.events.clone());
        tokio::spawn(async move {
            let answer = match call {
                CatalogCall::Put(request) => match client.put_collection_schema(*request).await {
                    Ok(answer) => match answer.into_inner().generation {
                        Some(generation) => CatalogAnswer::Applied(generation),
                        None => CatalogAnswer::Refused(internal("the answer has no generation")),
                    },
                    Err(status) => refused_or_later(&status),
                },
                CatalogCall::Drop(request) => match client.drop_collection(*request).await {
                    Ok(_) => CatalogAnswer::Dropped,
                    Err(status) => refused_or_later(&status),
                },
            };
            let _ = events.send(GatewayEvent::Catalog(index, answer)).await;
        });
    }
}

async fn read_stream(
    client: &mut IngestGatewayServiceClient<Channel>,
    number: u64,
    outgoing: mpsc::Receiver<MutationBatch>,
    events: &mpsc::Sender<GatewayEvent>,
) -> Status {
    let mut acks = match client.stream_mutations(ReceiverStream::new(outgoing)).await {
        Ok(response) => response.into_inner(),
        Err(status) => return status,
    };
    loop {
        match acks.message().await {
            Ok(Some(ack)) => {
                if events.send(GatewayEvent::Ack(number, Box::new(ack))).await.is_err() {
                    return Status::cancelled("the adapter stopped");
                }
            }
            Ok(None) => return Status::unavailable("the gateway ended the stream"),
            Err(status) => return status,
        }
    }
}

fn internal(detail: &'static str) -> Breach {
    Breach::new(SfErrorCode::SfInternal, "", detail)
}

fn is_retryable(breach: &Breach) -> bool {
    matches!(tidegate_contract::error::class(breach.code()), ErrorClass::Retry | ErrorClass::Wait)
}

fn refused_or_later(status: &Status) -> CatalogAnswer {
    match from_status(status) {
        Some(breach) if is_retryable(&breach) => CatalogAnswer::Later(breach),
        Some(breach) => CatalogAnswer::Refused(breach),
        // Statuses without a contract error come from the transport.
        None => {
            let detail = format!("{:?}: {}", status.code(), status.message());
            let code =
                if is_transport(status) { SfErrorCode::SfUnavailable } else { SfErrorCode::SfInternal };
            let breach = Breach::new(code, "", detail);
            if is_transport(status) { CatalogAnswer::Later(breach) } else { CatalogAnswer::Refused(breach) }
        }
    }
}

/// Whether a status tells of the way to the gateway, not of the gateway's opinion.
fn is_transport(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Aborted
    )
}
