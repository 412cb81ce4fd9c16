//! Where questions are asked.

use std::pin::Pin;
use std::sync::Arc;

use tidegate_proto::searchfabric::v1 as pb;
use tidegate_proto::searchfabric::v1::query_service_server::QueryService;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::convert;
use crate::error::QueryError;
use crate::query::{self, Loaded, QueryHandle, Reading};

/// Documents of one message of a scan, unless asked otherwise.
const CHUNK_DEFAULT: usize = 500;
/// Documents of one message of a scan, at most.
const CHUNK_MAX: usize = 5_000;
/// Messages of a scan that wait for a slow reader.
const CHUNKS_AHEAD: usize = 2;
/// Documents of one lookup.
const IDS_MAX: usize = 1_000;

/// The service.
pub(super) struct Query {
    handle: QueryHandle,
}

impl Query {
    pub(super) fn new(handle: QueryHandle) -> Self {
        Self { handle }
    }

    async fn read(
        &self,
        selector: Option<&pb::CollectionSelector>,
        consistency: Option<&pb::ReadConsistency>,
    ) -> Result<Reading, Status> {
        let selector = selector.cloned().unwrap_or_default();
        let handle = self.handle.in_namespace(convert::namespace(&selector.namespace));
        let options = convert::read_options(consistency);
        handle.read(convert::selector(&selector)?, options).await.map_err(convert::status)
    }
}

fn freshness(reading: &Reading) -> Option<pb::Freshness> {
    Some(convert::freshness(reading.collection(), &reading.freshness))
}

type Chunks = Pin<Box<dyn Stream<Item = Result<pb::ScanResponse, Status>> + Send>>;

#[tonic::async_trait]
impl QueryService for Query {
    type ScanStream = Chunks;

    async fn search(
        &self,
        request: Request<pb::SearchRequest>,
    ) -> Result<Response<pb::SearchResponse>, Status> {
        let request = request.into_inner();
        let plain = convert::search(&request)?;
        let (reading, offset) = match &plain.page_token {
            None => (self.read(request.collection.as_ref(), request.consistency.as_ref()).await?, 0),
            Some(token) => {
                let selector = request.collection.clone().unwrap_or_default();
                let handle = self.handle.in_namespace(convert::namespace(&selector.namespace));
                let selector = convert::selector(&selector)?;
                handle.turn_page(selector, &plain, token).map_err(convert::status)?
            }
        };
        let found = self.handle.search_in(reading.clone(), plain, offset).await.map_err(convert::status)?;
        let (response, loaded) = found;
        let hits = response.hits.into_iter().zip(&loaded);
        let hits = hits.map(|(hit, loaded)| self::hit(hit, loaded, &reading, &request)).collect();
        Ok(Response::new(pb::SearchResponse {
            hits,
            total: response.total,
            facets: convert::facets(response.facets),
            next_page_token: response.next.unwrap_or_default(),
            freshness: freshness(&reading),
            took_us: response.took_us,
            collection: Some(reading.collection().reference.clone()),
        }))
    }

    async fn get_documents(
        &self,
        request: Request<pb::GetDocumentsRequest>,
    ) -> Result<Response<pb::GetDocumentsResponse>, Status> {
        let request = request.into_inner();
        if request.doc_ids.len() > IDS_MAX {
            let value = request.doc_ids.len();
            return Err(convert::status(QueryError::Limit { field: "doc_ids", value, limit: IDS_MAX }));
        }
        let reading = self.read(request.collection.as_ref(), request.consistency.as_ref()).await?;
        let freshness = freshness(&reading);
        let documents = query::blocking(move || {
            let found = request.doc_ids.iter().filter_map(|id| reading.load(*id).transpose());
            let document =
                |loaded: Loaded| convert::document(&loaded, reading.collection(), &request.return_fields);
            found.map(|loaded| loaded.map(document)).collect::<Result<Vec<_>, _>>()
        });
        let documents = documents.await.map_err(convert::status)?;
        Ok(Response::new(pb::GetDocumentsResponse { documents, freshness }))
    }

    async fn count(&self, request: Request<pb::CountRequest>) -> Result<Response<pb::CountResponse>, Status> {
        let request = request.into_inner();
        let filter =
            request.filter.as_ref().map(|filter| convert::filter(filter, "filter", 0)).transpose()?;
        let text = request.text.as_ref().map(convert::text);
        let reading = self.read(request.collection.as_ref(), request.consistency.as_ref()).await?;
        let freshness = freshness(&reading);
        let count = query::blocking(move || query::count(&reading, text.as_ref(), filter.as_ref()));
        let documents = count.await.map_err(convert::status)?;
        Ok(Response::new(pb::CountResponse { documents, freshness }))
    }

    async fn scan(&self, request: Request<pb::ScanRequest>) -> Result<Response<Chunks>, Status> {
        let request = request.into_inner();
        let chunk = usize::try_from(request.chunk).unwrap_or(usize::MAX);
        let chunk = query::limit(chunk, CHUNK_DEFAULT, CHUNK_MAX).map_err(convert::status)?;
        let filter =
            request.filter.as_ref().map(|filter| convert::filter(filter, "filter", 0)).transpose()?;
        let reading = Arc::new(self.read(request.collection.as_ref(), request.consistency.as_ref()).await?);
        let (chunks, received) = mpsc::channel(CHUNKS_AHEAD);
        tokio::task::spawn_blocking(move || {
            let sent = scan(&reading, &request, filter.as_ref(), chunk, &chunks);
            if let Err(error) = sent {
                let _ = chunks.blocking_send(Err(convert::status(error)));
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(received))))
    }

    async fn get_freshness(
        &self,
        request: Request<pb::GetFreshnessRequest>,
    ) -> Result<Response<pb::GetFreshnessResponse>, Status> {
        let request = request.into_inner();
        let reading = self.read(request.collection.as_ref(), request.consistency.as_ref()).await?;
        Ok(Response::new(pb::GetFreshnessResponse { freshness: freshness(&reading) }))
    }
}

/// Sends a whole scan, every message with the freshness of the one state it reads; one message even when
/// there is nothing. Ends early when the reader is gone.
fn scan(
    reading: &Reading,
    request: &pb::ScanRequest,
    filter: Option<&query::request::Filter>,
    chunk: usize,
    chunks: &mpsc::Sender<Result<pb::ScanResponse, Status>>,
) -> Result<(), QueryError> {
    let admitted = filter.map(|filter| query::admitted(reading, filter)).transpose()?;
    let mut after = request.after_doc_id;
    loop {
        let part = query::scan(reading, admitted.as_ref(), after, chunk)?;
        let document = |loaded| convert::document(loaded, reading.collection(), &request.return_fields);
        let documents = part.documents.iter().map(document).collect();
        let message = pb::ScanResponse { documents, freshness: freshness(reading) };
        if chunks.blocking_send(Ok(message)).is_err() {
            return Ok(());
        }
        match part.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

fn hit(
    hit: query::response::Hit,
    loaded: &Loaded,
    reading: &Reading,
    request: &pb::SearchRequest,
) -> pb::SearchHit {
    let wanted = |field: &str| {
        let names = &request.highlight_fields;
        names.iter().any(|name| name == field || field.starts_with(&format!("{name}.")))
    };
    let highlights = hit.highlights.into_iter().filter(|highlight| wanted(&highlight.field));
    pb::SearchHit {
        document: Some(convert::document(loaded, reading.collection(), &request.return_fields)),
        score: f64::from(hit.score),
        text_score: hit.text_score.map(f64::from),
        vector_score: hit.similarity.map(f64::from),
        highlights: highlights
            .map(|highlight| pb::Highlight {
                field: highlight.field,
                pieces: highlight
                    .pieces
                    .into_iter()
                    .map(|piece| pb::HighlightPiece { text: piece.text, matched: piece.hit })
                    .collect(),
            })
            .collect(),
    }
}
