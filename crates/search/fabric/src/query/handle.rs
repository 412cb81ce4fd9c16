//! The reading side of a running fabric.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::MonoTime;
use tokio::sync::watch;

use super::page::{self, Kept};
use super::render::Loaded;
use super::request::{Filter, LIMIT_MAX, ReadOptions, ScanRequest, SearchRequest, TextQuery, WAIT_MAX_MS};
use super::response::{CountResponse, Freshness, GetResponse, ScanResponse, SearchResponse};
use super::search;
use crate::catalog::{Collection, Selector};
use crate::engine::{CollectionView, IndexView, Shared, View};
use crate::error::{FabricError, QueryError};
use crate::status::{Event, Status};

/// The namespace of callers that name none.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// Answers questions about what a fabric holds. Cheap to clone.
#[derive(Clone)]
pub struct QueryHandle {
    shared: Arc<Shared>,
    kept: Arc<Kept>,
    namespace: Arc<str>,
}

impl std::fmt::Debug for QueryHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QueryHandle({})", self.namespace)
    }
}

/// One collection in one published state: what a question is answered from.
#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) view: Arc<View>,
    pub(crate) found: CollectionView,
    pub(crate) freshness: Freshness,
}

impl Reading {
    pub(crate) fn collection(&self) -> &Collection {
        &self.found.collection
    }

    pub(crate) fn index(&self) -> Result<&IndexView, QueryError> {
        let dropped = || QueryError::CollectionDropped(self.collection().name().to_owned());
        self.found.index.as_ref().ok_or_else(dropped)
    }

    /// A live document.
    pub(crate) fn load(&self, id: u64) -> Result<Option<Loaded>, QueryError> {
        match self.view.store.document(self.collection().uid, id)? {
            Some(record) => Ok(Loaded::new(id, &record)?),
            None => Ok(None),
        }
    }
}

/// Documents of one state in ascending id.
pub(crate) struct Scan {
    pub(crate) documents: Vec<Loaded>,
    pub(crate) next: Option<u64>,
}

impl QueryHandle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, kept: Arc::default(), namespace: DEFAULT_NAMESPACE.into() }
    }

    /// The same fabric seen from another namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self { namespace: namespace.into(), ..self.clone() }
    }

    /// Ranked, filtered, sorted, counted: see [`SearchRequest`].
    ///
    /// # Errors
    /// As [`QueryError`] says; nothing is answered in part.
    pub async fn search(&self, request: SearchRequest) -> Result<SearchResponse, QueryError> {
        let (reading, offset) = match &request.page_token {
            None => (self.read(Selector::Name(&request.collection), request.read).await?, 0),
            Some(token) => {
                let at = page::position(&request, token)?;
                let expired = || QueryError::PageToken("has expired");
                let view = self.kept.find(at.group, self.now()).ok_or_else(expired)?;
                (self.find(&view, Selector::Name(&request.collection))?, at.offset)
            }
        };
        self.search_in(reading, request, offset).await.map(|(response, _)| response)
    }

    /// As [`QueryHandle::search`], in a state that was chosen already. Gives the documents in stored form
    /// too.
    pub(crate) async fn search_in(
        &self,
        reading: Reading,
        request: SearchRequest,
        offset: usize,
    ) -> Result<(SearchResponse, Vec<Loaded>), QueryError> {
        let view = reading.view.clone();
        let (response, loaded) = blocking(move || search::run(&reading, &request, offset)).await?;
        if response.next.is_some() {
            self.kept.keep(&view, self.now());
        }
        Ok((response, loaded))
    }

    /// The state that a page token points into, and the place in it.
    pub(crate) fn turn_page(
        &self,
        selector: Selector<'_>,
        request: &SearchRequest,
        token: &str,
    ) -> Result<(Reading, usize), QueryError> {
        let at = page::position(request, token)?;
        let view = self.kept.find(at.group, self.now()).ok_or(QueryError::PageToken("has expired"))?;
        Ok((self.find(&view, selector)?, at.offset))
    }

    /// A document by id.
    ///
    /// # Errors
    /// As [`QueryError`] says. A document that does not exist is an answer, not an error.
    pub async fn get(
        &self,
        collection: &str,
        id: u64,
        options: ReadOptions,
    ) -> Result<GetResponse, QueryError> {
        let reading = self.read(Selector::Name(collection), options).await?;
        let record = reading.view.store.document(reading.collection().uid, id)?;
        let loaded = record.as_ref().map(|record| Loaded::new(id, record)).transpose()?.flatten();
        Ok(GetResponse {
            document: loaded.map(|loaded| loaded.document(reading.collection(), |_| true)),
            deleted_at: record.filter(|record| !record.is_live()).map(|record| record.version),
            freshness: reading.freshness,
        })
    }

    /// How many documents match; all of them without text and filter.
    ///
    /// # Errors
    /// As [`QueryError`] says.
    pub async fn count(
        &self,
        collection: &str,
        text: Option<TextQuery>,
        filter: Option<Filter>,
        options: ReadOptions,
    ) -> Result<CountResponse, QueryError> {
        let reading = self.read(Selector::Name(collection), options).await?;
        let freshness = reading.freshness.clone();
        let count = blocking(move || search::count(&reading, text.as_ref(), filter.as_ref())).await?;
        Ok(CountResponse { count, freshness })
    }

    /// Documents in ascending id. Each page reads the newest state; for one state over all pages use the gRPC
    /// scan.
    ///
    /// # Errors
    /// As [`QueryError`] says.
    pub async fn scan(&self, request: ScanRequest) -> Result<ScanResponse, QueryError> {
        let limit = limit(request.limit, LIMIT_MAX, LIMIT_MAX)?;
        let reading = self.read(Selector::Name(&request.collection), request.read).await?;
        blocking(move || {
            let scan = search::scan(&reading, None, request.after, limit)?;
            let documents = scan.documents.iter().map(|doc| doc.document(reading.collection(), |_| true));
            Ok(ScanResponse {
                documents: documents.collect(),
                next: scan.next,
                freshness: reading.freshness.clone(),
            })
        })
        .await
    }

    /// Collections, partitions, progress.
    pub fn status(&self) -> Status {
        crate::status::report(&self.shared, &self.namespace)
    }

    /// Events above a number, oldest first.
    pub fn events(&self, after: u64, limit: usize) -> Vec<Event> {
        self.shared.events(after, limit)
    }

    /// Changes whenever a new state is published.
    pub fn views(&self) -> watch::Receiver<u64> {
        self.shared.views()
    }

    fn now(&self) -> MonoTime {
        self.shared.clock.mono()
    }

    /// A collection in the newest state, as soon as it is as fresh as asked for.
    pub(crate) async fn read(
        &self,
        selector: Selector<'_>,
        options: ReadOptions,
    ) -> Result<Reading, QueryError> {
        let wait_ms = options.wait_ms.min(WAIT_MAX_MS);
        let mut views = self.shared.views();
        let fresh = async {
            loop {
                views.mark_unchanged();
                let view = self.shared.view().ok_or(FabricError::Stopped)?;
                let reading = self.find(&view, selector)?;
                if self.shortfall(&reading.freshness, options, wait_ms).is_none() {
                    return Ok(reading);
                }
                views.changed().await.map_err(|_| FabricError::Stopped)?;
            }
        };
        match tokio::time::timeout(Duration::from_millis(wait_ms), fresh).await {
            Ok(reading) => reading,
            Err(_) => {
                let view = self.shared.view().ok_or(FabricError::Stopped)?;
                let reading = self.find(&view, selector)?;
                match self.shortfall(&reading.freshness, options, wait_ms) {
                    Some(error) => Err(error),
                    None => Ok(reading),
                }
            }
        }
    }

    /// What keeps an answer from being as fresh as asked for.
    fn shortfall(&self, freshness: &Freshness, options: ReadOptions, waited_ms: u64) -> Option<QueryError> {
        let safe_ts = freshness.safe_ts;
        if let Some(wanted) = options.at_least.filter(|wanted| safe_ts.ts() < *wanted) {
            return Some(QueryError::FreshnessTimeout { wanted, safe_ts, waited_ms });
        }
        let limit_ms = options.staleness_max_ms?;
        let lag_ms = freshness.lag_ms;
        (lag_ms.is_none_or(|lag_ms| lag_ms > limit_ms))
            .then_some(QueryError::StalenessExceeded { lag_ms, limit_ms })
    }

    /// A collection in a state.
    pub(crate) fn find(&self, view: &Arc<View>, selector: Selector<'_>) -> Result<Reading, QueryError> {
        let name = match selector {
            Selector::Name(name) | Selector::Id(name) => name.to_owned(),
        };
        let Some(collection) = view.catalog.select(&self.namespace, selector) else {
            return Err(QueryError::CollectionNotFound(name));
        };
        if collection.dropped.is_some() {
            return Err(QueryError::CollectionDropped(name));
        }
        let found = view.collections.get(&collection.uid).cloned();
        let found = found.ok_or(QueryError::CollectionNotFound(name))?;
        let freshness = self.shared.freshness(view, collection);
        Ok(Reading { view: view.clone(), found, freshness })
    }
}

/// Runs work that reads files or computes for long where it does not hold up the runtime.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, QueryError> + Send + 'static,
) -> Result<T, QueryError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| FabricError::Stopped)?
}

/// A page size: the default for 0, and an error beyond the limit.
pub(crate) fn limit(asked: usize, default: usize, limit: usize) -> Result<usize, QueryError> {
    match asked {
        0 => Ok(default),
        asked if asked <= limit => Ok(asked),
        asked => Err(QueryError::Limit { field: "limit", value: asked, limit }),
    }
}
