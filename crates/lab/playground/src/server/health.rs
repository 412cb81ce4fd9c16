//! `grpc.health.v1`: whoever answers at all is healthy.

use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};
use tidegate_proto::health::health_check_response::ServingStatus;
use tidegate_proto::health::health_server::Health;
use tidegate_proto::health::{HealthCheckRequest, HealthCheckResponse};
use tonic::{Request, Response, Status};

#[derive(Clone, Copy)]
pub(crate) struct Healthy;

fn serving() -> HealthCheckResponse {
    HealthCheckResponse { status: ServingStatus::Serving.into() }
}

#[tonic::async_trait]
impl Health for Healthy {
    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(serving()))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Ok(Response::new(stream::once(async { Ok(serving()) }).chain(stream::pending()).boxed()))
    }
}
