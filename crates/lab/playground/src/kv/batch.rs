//! `BatchCommands`: many calls on one stream, answered by id (`reference/tikv-kv-protocol.md` §8).

use std::pin::Pin;

use futures_util::{Stream, StreamExt};
use tidegate_proto::tikvpb::batch_commands_request::request::Cmd as Ask;
use tidegate_proto::tikvpb::batch_commands_response::Response as Answer;
use tidegate_proto::tikvpb::batch_commands_response::response::Cmd;
use tidegate_proto::tikvpb::{BatchCommandsEmptyResponse, BatchCommandsRequest, BatchCommandsResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{KvService, locks, read, write};

/// Answers that wait for a slow reader; then requests wait too.
const ANSWERS_QUEUED_MAX: usize = 64;

pub(super) type Answers = Pin<Box<dyn Stream<Item = Result<BatchCommandsResponse, Status>> + Send>>;

pub(super) fn serve(service: KvService, requests: Streaming<BatchCommandsRequest>) -> Answers {
    let (sender, receiver) = mpsc::channel(ANSWERS_QUEUED_MAX);
    tokio::spawn(read_requests(service, requests, sender));
    ReceiverStream::new(receiver).boxed()
}

async fn read_requests(
    service: KvService,
    mut requests: Streaming<BatchCommandsRequest>,
    sender: mpsc::Sender<Result<BatchCommandsResponse, Status>>,
) {
    while let Ok(Some(batch)) = requests.message().await {
        let mut done = BatchCommandsResponse::default();
        for (request, id) in batch.requests.into_iter().zip(batch.request_ids) {
            match request.cmd {
                // May wait for a lock, which must not hold the others back.
                Some(Ask::PessimisticLock(ask)) => {
                    let (service, sender) = (service.clone(), sender.clone());
                    tokio::spawn(async move {
                        let answer = service.pessimistic_lock(&ask).await.map(|answer| {
                            respond(BatchCommandsResponse::default(), id, Some(Cmd::PessimisticLock(answer)))
                        });
                        drop(sender.send(answer).await);
                    });
                }
                ask => match ask.map(|ask| answer(&service, ask)).transpose() {
                    Ok(cmd) => done = respond(done, id, cmd.flatten()),
                    Err(status) => {
                        drop(sender.send(Err(status)).await);
                        return;
                    }
                },
            }
        }
        if !done.responses.is_empty() && sender.send(Ok(done)).await.is_err() {
            return;
        }
    }
}

fn respond(mut message: BatchCommandsResponse, id: u64, cmd: Option<Cmd>) -> BatchCommandsResponse {
    message.responses.push(Answer { cmd });
    message.request_ids.push(id);
    message
}

fn answer(service: &KvService, ask: Ask) -> Result<Option<Cmd>, Status> {
    Ok(Some(match ask {
        Ask::Get(ask) => Cmd::Get(service.call(&ask, read::get)?),
        Ask::Scan(ask) => Cmd::Scan(service.call(&ask, read::scan)?),
        Ask::Prewrite(ask) => Cmd::Prewrite(service.call(&ask, write::prewrite)?),
        Ask::Commit(ask) => Cmd::Commit(service.call(&ask, write::commit)?),
        Ask::Cleanup(ask) => Cmd::Cleanup(service.call(&ask, write::cleanup)?),
        Ask::BatchGet(ask) => Cmd::BatchGet(service.call(&ask, read::batch_get)?),
        Ask::BatchRollback(ask) => Cmd::BatchRollback(service.call(&ask, write::batch_rollback)?),
        Ask::ScanLock(ask) => Cmd::ScanLock(service.call(&ask, locks::scan_lock)?),
        Ask::ResolveLock(ask) => Cmd::ResolveLock(service.call(&ask, locks::resolve_lock)?),
        Ask::PessimisticRollback(ask) => {
            Cmd::PessimisticRollback(service.call(&ask, locks::pessimistic_rollback)?)
        }
        Ask::CheckTxnStatus(ask) => Cmd::CheckTxnStatus(service.call(&ask, locks::check_txn_status)?),
        Ask::TxnHeartBeat(ask) => Cmd::TxnHeartBeat(service.call(&ask, locks::heart_beat)?),
        Ask::CheckSecondaryLocks(ask) => {
            Cmd::CheckSecondaryLocks(service.call(&ask, locks::check_secondary_locks)?)
        }
        Ask::Empty(ask) => Cmd::Empty(BatchCommandsEmptyResponse { test_id: ask.test_id }),
        // Handled by the caller, because it may wait.
        Ask::PessimisticLock(_) => return Ok(None),
    }))
}
