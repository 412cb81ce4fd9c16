//! Timestamps: one stream, and one request in flight for everybody who waits.
//!
//! A request asks for as many timestamps as there are waiters. While it is under way new waiters gather for
//! the next one, so the batch grows with the load by itself and nothing has to be tuned.

use std::sync::Arc;

use tidegate_core::Ts;
use tidegate_proto::pdpb;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::PdError;
use crate::members::{Members, millis, stub};

const CALL: &str = "Tso";
/// Waiters per request. PD allots up to 2^18 timestamps in one tick, clients in use ask for up to 10,000.
const BATCH_MAX: usize = 1024;
/// Waiters that may queue; beyond it callers wait for a place, which is the same to them.
pub(crate) const QUEUE_MAX: usize = 4096;

/// Somebody who waits for a timestamp.
pub(crate) type Waiter = oneshot::Sender<Result<Ts, PdError>>;

/// An open stream.
struct Stream {
    requests: mpsc::Sender<pdpb::TsoRequest>,
    responses: Streaming<pdpb::TsoResponse>,
    generation: u64,
}

/// Serves waiters until all handles are gone.
pub(crate) async fn serve(members: Arc<Members>, mut waiters: mpsc::Receiver<Waiter>) {
    let mut oracle = Oracle { members, stream: None, last: Ts::ZERO };
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while waiters.recv_many(&mut batch, BATCH_MAX).await > 0 {
        batch.retain(|waiter| !waiter.is_closed());
        if batch.is_empty() {
            continue;
        }
        match oracle.allot(batch.len()).await {
            Ok(first) => hand_out(first, &mut batch),
            Err(error) => batch.drain(..).for_each(|waiter| drop(waiter.send(Err(error.clone())))),
        }
    }
}

fn hand_out(first: Ts, batch: &mut Vec<Waiter>) {
    let mut next = first;
    for waiter in batch.drain(..) {
        // A waiter that gave up just loses its timestamp.
        let _ = waiter.send(Ok(next));
        next = next.next();
    }
}

struct Oracle {
    members: Arc<Members>,
    stream: Option<Stream>,
    last: Ts,
}

impl Oracle {
    /// The first of `count` consecutive timestamps; repeated over broken streams for as long as calls are.
    async fn allot(&mut self, count: usize) -> Result<Ts, PdError> {
        let deadline = Instant::now() + self.members.options().retry_for;
        let mut pause = std::time::Duration::from_millis(50);
        loop {
            let error = match self.attempt(count).await {
                Ok(first) => return Ok(first),
                Err(error) => error,
            };
            if let Some(stream) = self.stream.take() {
                self.members.forget_leader(stream.generation);
            }
            if !error.is_retryable() || Instant::now() + pause >= deadline {
                return Err(error);
            }
            tracing::debug!(%error, "asking again for timestamps");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(std::time::Duration::from_secs(1));
        }
    }

    async fn attempt(&mut self, count: usize) -> Result<Ts, PdError> {
        let wait = self.members.options().request_timeout;
        let timed_out = |_| PdError::Timeout { call: CALL, timeout_ms: millis(wait) };
        let members = Arc::clone(&self.members);
        let response = timeout(wait, self.exchange(count)).await.map_err(timed_out)?;
        let response = response.map_err(|failure| match failure {
            Failure::Status(status) => members.classify(CALL, &status),
            Failure::Pd(error) => error,
        })?;
        let first = first_of(&response, count)?;
        if first <= self.last {
            let detail = format!("timestamp {first} is not above {}", self.last);
            return Err(PdError::Rpc { call: CALL, code: Code::Unknown, message: detail });
        }
        self.last = Ts::new(first.get().saturating_add(count as u64 - 1));
        Ok(first)
    }

    async fn exchange(&mut self, count: usize) -> Result<pdpb::TsoResponse, Failure> {
        let header = self.members.header();
        let request = pdpb::TsoRequest {
            header,
            count: u32::try_from(count).unwrap_or(u32::MAX),
            ..Default::default()
        };
        let stream = match &mut self.stream {
            Some(stream) => {
                // The channel holds one request and none is under way: a failure means the stream is gone.
                stream.requests.send(request).await.map_err(|_| closed())?;
                stream
            }
            none => none.insert(open(&self.members, request).await?),
        };
        stream.responses.message().await?.ok_or_else(closed)
    }
}

/// Opens a stream with its first request already under way: servers may answer the call's headers only then.
async fn open(members: &Members, first: pdpb::TsoRequest) -> Result<Stream, Failure> {
    let (channel, generation) = members.leader().await.map_err(Failure::Pd)?;
    let (requests, outbound) = mpsc::channel(1);
    requests.send(first).await.map_err(|_| closed())?;
    let opened = stub(channel).tso(ReceiverStream::new(outbound)).await;
    match opened {
        Ok(response) => Ok(Stream { requests, responses: response.into_inner(), generation }),
        Err(status) => {
            members.forget_leader(generation);
            Err(Failure::Status(Box::new(status)))
        }
    }
}

enum Failure {
    Status(Box<Status>),
    Pd(PdError),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

fn closed() -> Failure {
    Status::unavailable("the timestamp stream was closed").into()
}

/// A reply carries the *last* timestamp of its batch (`reference/pd-protocol.md` §5).
fn first_of(response: &pdpb::TsoResponse, count: usize) -> Result<Ts, PdError> {
    let malformed = |detail: String| PdError::Malformed { call: CALL, detail };
    if let Some(error) = response.header.as_ref().and_then(|header| header.error.as_ref()) {
        return Err(PdError::Rpc { call: CALL, code: Code::Unavailable, message: error.message.clone() });
    }
    if usize::try_from(response.count) != Ok(count) {
        return Err(malformed(format!("asked for {count} timestamps, got {}", response.count)));
    }
    let last = response.timestamp.as_ref().ok_or_else(|| malformed("no timestamp".into()))?;
    let physical = u64::try_from(last.physical).map_err(|_| malformed("a negative physical part".into()))?;
    let logical = u64::try_from(last.logical).map_err(|_| malformed("a negative logical part".into()))?;
    let first = logical.checked_sub(u64::from(response.count) - 1);
    let first = first.ok_or_else(|| malformed(format!("logical part {logical} is too small for {count}")))?;
    Ok(Ts::from_parts(physical, first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(count: u32, physical: i64, logical: i64) -> pdpb::TsoResponse {
        let timestamp = Some(pdpb::Timestamp { physical, logical, suffix_bits: 0 });
        pdpb::TsoResponse { header: None, count, timestamp }
    }

    #[test]
    fn a_reply_carries_the_last_timestamp_of_its_batch() {
        // Five timestamps ending at logical 12 are 8, 9, 10, 11, 12.
        assert_eq!(first_of(&reply(5, 100, 12), 5).unwrap(), Ts::from_parts(100, 8));
        assert_eq!(first_of(&reply(1, 100, 0), 1).unwrap(), Ts::from_parts(100, 0));
    }

    #[test]
    fn an_impossible_reply_is_an_error() {
        for (response, asked) in
            [(reply(2, 100, 12), 5), (reply(5, 100, 3), 5), (reply(1, -1, 3), 1), (reply(1, 1, -3), 1)]
        {
            assert!(matches!(first_of(&response, asked), Err(PdError::Malformed { .. })), "{response:?}");
        }
    }

    #[test]
    fn each_waiter_gets_its_own_timestamp_in_order() {
        let (mut batch, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
        hand_out(Ts::from_parts(100, 8), &mut batch);
        let got: Vec<u64> =
            receivers.into_iter().map(|mut rx| rx.try_recv().unwrap().unwrap().logical()).collect();
        assert_eq!(got, [8, 9, 10]);
    }
}
