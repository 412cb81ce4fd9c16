//! `keyspacepb.Keyspace` (`reference/pd-protocol.md` §9).

use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};
use tidegate_core::KeyspaceId;
use tidegate_proto::keyspacepb::keyspace_server::Keyspace as KeyspaceService;
use tidegate_proto::keyspacepb::*;
use tidegate_proto::pdpb::{ErrorType, RequestHeader};
use tonic::{Request, Response, Status};

use super::{PdError, PdService};
use crate::Keyspace;

impl PdService {
    fn keyspace_proto(&self, keyspace: &Keyspace) -> KeyspaceMeta {
        let gc_management = if keyspace.own_gc { "keyspace_level" } else { "unified" };
        KeyspaceMeta {
            identity: Some(keyspace_meta::Identity::Id(keyspace.id.get())),
            name: keyspace.name.clone(),
            state: KeyspaceState::Enabled.into(),
            created_at: self.upstream.started_s,
            state_changed_at: self.upstream.started_s,
            config: [("gc_management_type".to_owned(), gc_management.to_owned())].into(),
        }
    }

    fn keyspaces(
        &self,
        header: Option<&RequestHeader>,
        wanted: impl Fn(&Keyspace) -> bool,
    ) -> Result<Vec<KeyspaceMeta>, Status> {
        self.step(header, |world, _| {
            world.keyspaces.iter().filter(|k| wanted(k)).map(|k| self.keyspace_proto(k)).collect()
        })
    }

    fn one(&self, found: Vec<KeyspaceMeta>) -> LoadKeyspaceResponse {
        let missing =
            || PdError { kind: ErrorType::EntryNotFound, message: "keyspace does not exist".to_owned() };
        let (header, keyspace) = self.settle(found.into_iter().next().ok_or_else(missing));
        LoadKeyspaceResponse { header, keyspace }
    }
}

#[tonic::async_trait]
impl KeyspaceService for PdService {
    async fn load_keyspace(
        &self,
        request: Request<LoadKeyspaceRequest>,
    ) -> Result<Response<LoadKeyspaceResponse>, Status> {
        let request = request.get_ref();
        let found = self.keyspaces(request.header.as_ref(), |keyspace| keyspace.name == request.name)?;
        Ok(Response::new(self.one(found)))
    }

    async fn load_keyspace_by_id(
        &self,
        request: Request<LoadKeyspaceByIdRequest>,
    ) -> Result<Response<LoadKeyspaceResponse>, Status> {
        use load_keyspace_by_id_request::Identity;
        let request = request.get_ref();
        let id = match &request.identity {
            Some(Identity::Id(id)) => *id,
            Some(Identity::KeyspaceIdentity(identity)) => identity.keyspace_id,
            None => return Err(Status::invalid_argument("the request names no keyspace")),
        };
        let found = self.keyspaces(request.header.as_ref(), |keyspace| keyspace.id == KeyspaceId(id))?;
        Ok(Response::new(self.one(found)))
    }

    async fn lookup_keyspace(
        &self,
        request: Request<LookupKeyspaceRequest>,
    ) -> Result<Response<GetAllKeyspacesResponse>, Status> {
        let request = request.get_ref();
        let keyspaces = self.keyspaces(request.header.as_ref(), |keyspace| keyspace.name == request.name)?;
        Ok(Response::new(GetAllKeyspacesResponse { header: self.header(), keyspaces }))
    }

    type WatchKeyspacesStream = Pin<Box<dyn Stream<Item = Result<WatchKeyspacesResponse, Status>> + Send>>;

    async fn watch_keyspaces(
        &self,
        request: Request<WatchKeyspacesRequest>,
    ) -> Result<Response<Self::WatchKeyspacesStream>, Status> {
        let keyspaces = self.keyspaces(request.get_ref().header.as_ref(), |_| true)?;
        let all = WatchKeyspacesResponse { header: self.header(), keyspaces };
        // Keyspaces never change here, so nothing follows the first message.
        Ok(Response::new(stream::once(async { Ok(all) }).chain(stream::pending()).boxed()))
    }

    async fn get_all_keyspaces(
        &self,
        request: Request<GetAllKeyspacesRequest>,
    ) -> Result<Response<GetAllKeyspacesResponse>, Status> {
        use get_all_keyspaces_request::Start;
        let request = request.get_ref();
        let start = match &request.start {
            Some(Start::StartId(id)) => *id,
            Some(Start::StartKeyspaceIdentity(identity)) => identity.keyspace_id,
            None => 0,
        };
        let mut keyspaces = self.keyspaces(request.header.as_ref(), |keyspace| keyspace.id.get() >= start)?;
        if request.limit > 0 {
            keyspaces.truncate(usize::try_from(request.limit).unwrap_or(usize::MAX));
        }
        Ok(Response::new(GetAllKeyspacesResponse { header: self.header(), keyspaces }))
    }
}
