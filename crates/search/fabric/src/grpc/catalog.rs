//! Where schemas live.

use std::sync::Arc;

use tidegate_contract::error::{Breach, SfErrorCode};
use tidegate_contract::validate::{check_drop, check_put_schema};
use tidegate_proto::searchfabric::v1::catalog_control_service_server::CatalogControlService;
use tidegate_proto::searchfabric::v1::{
    Collection, CollectionState, DropCollectionRequest, DropCollectionResponse, GetCollectionRequest,
    GetCollectionResponse, ListCollectionsRequest, ListCollectionsResponse, PutCollectionSchemaRequest,
    PutCollectionSchemaResponse,
};
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use super::convert;
use crate::catalog::Selector;
use crate::engine::{CollectionView, Command, Engine, View};

/// The service.
pub(super) struct CatalogControl {
    engine: Arc<Engine>,
}

impl CatalogControl {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    async fn ask<T>(
        &self,
        command: Command,
        answer: oneshot::Receiver<Result<T, Breach>>,
    ) -> Result<T, Status> {
        let stopping = || Breach::new(SfErrorCode::SfUnavailable, "", "the fabric is stopping").to_status();
        self.engine.commands.send(command).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())?.map_err(|breach| breach.to_status())
    }

    fn collection(&self, view: &View, found: &CollectionView) -> Collection {
        let collection = &found.collection;
        let dropped = collection.dropped.as_ref().map(|dropped| dropped.at.get());
        let state = if dropped.is_some() { CollectionState::Dropped } else { CollectionState::Active };
        let freshness = self.engine.shared.freshness(view, collection);
        Collection {
            collection: Some(collection.reference.clone()),
            name: collection.name().to_owned(),
            state: state.into(),
            generations: collection.generations.iter().map(|g| g.generation.clone()).collect(),
            dropped_at_ts: dropped.unwrap_or_default(),
            documents: found.index.as_ref().map_or(0, |index| index.searcher.num_docs()),
            freshness: Some(convert::freshness(collection, &freshness)),
        }
    }
}

#[tonic::async_trait]
impl CatalogControlService for CatalogControl {
    async fn put_collection_schema(
        &self,
        request: Request<PutCollectionSchemaRequest>,
    ) -> Result<Response<PutCollectionSchemaResponse>, Status> {
        let request = Box::new(request.into_inner());
        check_put_schema(&request).map_err(|breach| breach.to_status())?;
        let (reply, answer) = oneshot::channel();
        let (generation, replayed) = self.ask(Command::Put { request, reply }, answer).await?;
        Ok(Response::new(PutCollectionSchemaResponse { generation: Some(generation), replayed }))
    }

    async fn drop_collection(
        &self,
        request: Request<DropCollectionRequest>,
    ) -> Result<Response<DropCollectionResponse>, Status> {
        let request = Box::new(request.into_inner());
        check_drop(&request).map_err(|breach| breach.to_status())?;
        let (reply, answer) = oneshot::channel();
        let (at, replayed) = self.ask(Command::Drop { request, reply }, answer).await?;
        Ok(Response::new(DropCollectionResponse { dropped_at_ts: at.get(), replayed }))
    }

    async fn get_collection(
        &self,
        request: Request<GetCollectionRequest>,
    ) -> Result<Response<GetCollectionResponse>, Status> {
        let request = request.into_inner();
        let reference = request.collection.unwrap_or_default();
        let selector = if request.name.is_empty() {
            Selector::Id(&reference.collection_id)
        } else {
            Selector::Name(&request.name)
        };
        let missing = || Breach::new(SfErrorCode::SfCollectionNotFound, "collection", "does not exist");
        let view = self.engine.shared.view().ok_or_else(|| missing().to_status())?;
        let namespace = convert::namespace(&reference.namespace);
        let found = view.catalog.select(namespace, selector).and_then(|c| view.collections.get(&c.uid));
        let found = found.ok_or_else(|| missing().to_status())?;
        Ok(Response::new(GetCollectionResponse { collection: Some(self.collection(&view, found)) }))
    }

    async fn list_collections(
        &self,
        request: Request<ListCollectionsRequest>,
    ) -> Result<Response<ListCollectionsResponse>, Status> {
        let request = request.into_inner();
        let namespace = convert::namespace(&request.namespace);
        let Some(view) = self.engine.shared.view() else {
            return Ok(Response::new(ListCollectionsResponse::default()));
        };
        let here = view.collections.values().filter(|found| {
            let collection = &found.collection;
            collection.reference.namespace == namespace
                && (request.include_dropped || collection.dropped.is_none())
        });
        let collections = here.map(|found| self.collection(&view, found)).collect();
        Ok(Response::new(ListCollectionsResponse { collections }))
    }
}
