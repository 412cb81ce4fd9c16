//! Finding the leader among the members, and repeating calls over leader changes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::future::Future;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tidegate_core::ClusterId;
use tidegate_proto::pdpb::{self, pd_client::PdClient as Stub};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

use crate::{PdError, PdOptions};

/// A scan of regions is the largest answer: 1,024 regions with a few hundred bytes each. 64 MiB is far above
/// any real answer, and a bound (`reference/pd-protocol.md` §1).
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// PD's own interval; a dead leader is noticed within 13 s even without a call.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);
/// After the first good answer at start-up the other endpoints get this long to contradict it, so that a
/// stranger in the list is found; a dead one does not delay the start further.
const SECOND_OPINION: Duration = Duration::from_millis(300);
/// Pauses between attempts of a call: short enough to ride out an election unnoticed, long enough not to
/// hammer a member that is starting.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The current leader.
#[derive(Clone, Debug)]
struct Leader {
    channel: Channel,
    /// Grows with each discovery, so that a late failure of an old leader does not drop the new one.
    generation: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Seeds and everything members named since; never shrinks below the seeds.
    urls: BTreeSet<String>,
    leader: Option<Leader>,
    generation: u64,
}

/// What one member answered.
struct Answer {
    url: String,
    channel: Channel,
    cluster_id: ClusterId,
    members: Vec<pdpb::Member>,
    leader: Option<pdpb::Member>,
}

/// The members of one cluster.
#[derive(Debug)]
pub(crate) struct Members {
    options: PdOptions,
    cluster_id: ClusterId,
    state: Mutex<State>,
    /// Only one discovery at a time; others wait for its result.
    discovering: tokio::sync::Mutex<()>,
}

impl Members {
    /// Asks the seeds and binds to the cluster that answers.
    pub(crate) async fn connect(options: PdOptions) -> Result<Self, PdError> {
        let urls = options.endpoints.iter().map(|text| to_url(text)).collect::<Result<BTreeSet<_>, _>>()?;
        if urls.is_empty() {
            return Err(PdError::NoEndpoint);
        }
        let answers = ask_all(&urls, options.request_timeout, Some(SECOND_OPINION)).await?;
        let cluster_id = agreed_cluster(&answers, options.cluster_id)?;
        let state = Mutex::new(State { urls, ..State::default() });
        let members = Self { options, cluster_id, state, discovering: tokio::sync::Mutex::default() };
        members.adopt(answers).await?;
        Ok(members)
    }

    pub(crate) fn cluster_id(&self) -> ClusterId {
        self.cluster_id
    }

    pub(crate) fn options(&self) -> &PdOptions {
        &self.options
    }

    /// The header of every request.
    pub(crate) fn header(&self) -> Option<pdpb::RequestHeader> {
        Some(pdpb::RequestHeader {
            cluster_id: self.cluster_id.get(),
            caller_component: "tidegate".into(),
            ..Default::default()
        })
    }

    /// Repeats `call` over leader changes and broken connections until it succeeds, fails for good, or
    /// `retry_for` is over.
    pub(crate) async fn call<Q, T, F, Fut>(
        &self,
        name: &'static str,
        request: &Q,
        call: F,
    ) -> Result<T, PdError>
    where
        Q: Clone,
        F: Fn(Channel, Q) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let deadline = Instant::now() + self.options.retry_for;
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            let error = match self.attempt(name, |channel| call(channel, request.clone())).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if !error.is_retryable() || Instant::now() + pause >= deadline {
                return Err(error);
            }
            tracing::debug!(call = name, %error, "repeating a PD call");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    async fn attempt<T, Fut>(
        &self,
        name: &'static str,
        call: impl FnOnce(Channel) -> Fut,
    ) -> Result<T, PdError>
    where
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let (channel, generation) = self.leader().await?;
        let wait = self.options.request_timeout;
        let error = match timeout(wait, call(channel)).await {
            Ok(Ok(response)) => return Ok(response.into_inner()),
            Ok(Err(status)) => self.classify(name, &status),
            Err(_) => PdError::Timeout { call: name, timeout_ms: millis(wait) },
        };
        if error.is_retryable() {
            self.forget_leader(generation);
        }
        Err(error)
    }

    /// Turns a status into an error; a wrong cluster is recognised by its words (`reference` §2).
    pub(crate) fn classify(&self, call: &'static str, status: &Status) -> PdError {
        let mismatch =
            status.code() == Code::FailedPrecondition && status.message().contains("mismatch cluster id");
        if mismatch {
            let actual = number_after(status.message(), "need ").map_or(ClusterId(0), ClusterId);
            return PdError::ClusterMismatch {
                endpoint: "the leader".into(),
                expected: self.cluster_id,
                actual,
            };
        }
        PdError::Rpc { call, code: status.code(), message: status.message().to_owned() }
    }

    /// A channel to the leader and the generation to name when it fails.
    pub(crate) async fn leader(&self) -> Result<(Channel, u64), PdError> {
        if let Some(found) = self.known_leader() {
            return Ok(found);
        }
        let _one_at_a_time = self.discovering.lock().await;
        if let Some(found) = self.known_leader() {
            return Ok(found);
        }
        let urls = self.state.lock().urls.clone();
        let mut answers = ask_all(&urls, self.options.request_timeout, None).await?;
        answers.retain(|answer| self.is_ours(answer));
        self.adopt(answers).await?;
        self.known_leader().ok_or(PdError::NoLeader)
    }

    fn known_leader(&self) -> Option<(Channel, u64)> {
        self.state.lock().leader.as_ref().map(|leader| (leader.channel.clone(), leader.generation))
    }

    /// Drops the leader of `generation`, so that the next call looks for one.
    pub(crate) fn forget_leader(&self, generation: u64) {
        let mut state = self.state.lock();
        if state.leader.as_ref().is_some_and(|leader| leader.generation == generation) {
            state.leader = None;
        }
    }

    fn is_ours(&self, answer: &Answer) -> bool {
        let ours = answer.cluster_id == self.cluster_id;
        if !ours {
            let Answer { url, cluster_id, .. } = answer;
            tracing::warn!(endpoint = %url, cluster = %cluster_id, "another cluster's PD is ignored");
        }
        ours
    }

    /// Takes the first leader that can be dialled out of `answers`, and remembers all members.
    async fn adopt(&self, answers: Vec<Answer>) -> Result<(), PdError> {
        for answer in answers {
            self.remember(&answer.members);
            let Some(channel) = dial_leader(&answer, self.options.request_timeout).await else { continue };
            let mut state = self.state.lock();
            state.generation += 1;
            state.leader = Some(Leader { channel, generation: state.generation });
            return Ok(());
        }
        Err(PdError::NoLeader)
    }

    fn remember(&self, members: &[pdpb::Member]) {
        let named = members.iter().flat_map(|member| &member.client_urls);
        self.state.lock().urls.extend(named.filter_map(|url| to_url(url).ok()));
    }
}

/// Dials the leader an answer names. A lone member whose advertised address cannot be reached from here (it
/// may sit behind another address) is used through the address that answered.
async fn dial_leader(answer: &Answer, wait: Duration) -> Option<Channel> {
    let leader = answer.leader.as_ref()?;
    let urls: Vec<String> = leader.client_urls.iter().filter_map(|url| to_url(url).ok()).collect();
    if urls.contains(&answer.url) {
        return Some(answer.channel.clone());
    }
    for url in &urls {
        let Ok(endpoint) = endpoint(url) else { continue };
        if let Ok(Ok(channel)) = timeout(wait, endpoint.connect()).await {
            return Some(channel);
        }
    }
    (answer.members.len() == 1).then(|| answer.channel.clone())
}

/// Asks all `urls` at once. Without `second_opinion` the first answer that names a leader ends the waiting;
/// with it, others have that much longer. At least one answer, or an error.
async fn ask_all(
    urls: &BTreeSet<String>,
    wait: Duration,
    second_opinion: Option<Duration>,
) -> Result<Vec<Answer>, PdError> {
    let mut asking: FuturesUnordered<_> = urls.iter().map(|url| ask(url, wait)).collect();
    let mut deadline = Instant::now() + wait + wait;
    let (mut answers, mut failures) = (Vec::new(), String::new());
    while let Ok(Some((url, result))) = timeout_at(deadline, asking.next()).await {
        match result {
            Ok(answer) => {
                let usable = answer.leader.is_some();
                answers.push(answer);
                if usable {
                    let Some(extra) = second_opinion else { break };
                    deadline = deadline.min(Instant::now() + extra);
                }
            }
            Err(detail) => {
                let separator = if failures.is_empty() { "" } else { "; " };
                let _ = write!(failures, "{separator}{url}: {detail}");
            }
        }
    }
    if answers.is_empty() { Err(PdError::Unreachable { detail: failures }) } else { Ok(answers) }
}

async fn ask(url: &str, wait: Duration) -> (&str, Result<Answer, String>) {
    let asked = async {
        let channel =
            endpoint(url).map_err(|error| chain(&error))?.connect().await.map_err(|error| chain(&error))?;
        let request = pdpb::GetMembersRequest::default();
        let response = Stub::new(channel.clone()).get_members(request).await;
        let response = response.map_err(|status| format!("{}: {}", status.code(), status.message()))?;
        to_answer(url, channel, response.into_inner())
    };
    let result =
        timeout(wait, asked).await.unwrap_or_else(|_| Err(format!("no answer in {} ms", millis(wait))));
    (url, result)
}

fn to_answer(url: &str, channel: Channel, response: pdpb::GetMembersResponse) -> Result<Answer, String> {
    let header = response.header.unwrap_or_default();
    if let Some(error) = header.error {
        return Err(error.message);
    }
    if header.cluster_id == 0 {
        return Err("it answered without a cluster id; is this a PD?".into());
    }
    // Very old members name only etcd's leader, which is the same member (`reference` §4.1).
    let leader = response.leader.or(response.etcd_leader).filter(|leader| !leader.client_urls.is_empty());
    let cluster_id = ClusterId(header.cluster_id);
    Ok(Answer { url: url.to_owned(), channel, cluster_id, members: response.members, leader })
}

/// The one cluster that all answers and the caller's expectation name.
fn agreed_cluster(answers: &[Answer], expected: Option<ClusterId>) -> Result<ClusterId, PdError> {
    let first = answers.first().map(|answer| answer.cluster_id);
    let agreed = expected.or(first).ok_or(PdError::NoLeader)?;
    match answers.iter().find(|answer| answer.cluster_id != agreed) {
        None => Ok(agreed),
        Some(stranger) => Err(PdError::ClusterMismatch {
            endpoint: stranger.url.clone(),
            expected: agreed,
            actual: stranger.cluster_id,
        }),
    }
}

fn endpoint(url: &str) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(url.to_owned())?
        .connect_timeout(Duration::from_secs(3))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true))
}

/// A stub with this crate's message limit.
pub(crate) fn stub(channel: Channel) -> Stub<Channel> {
    Stub::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

/// `host:port` or `http://host:port`, with or without a trailing slash, as one canonical URL.
pub(crate) fn to_url(text: &str) -> Result<String, PdError> {
    let invalid =
        |detail: &str| PdError::InvalidEndpoint { endpoint: text.to_owned(), detail: detail.to_owned() };
    let trimmed = text.trim().trim_end_matches('/');
    if trimmed.starts_with("https://") {
        return Err(invalid("https is not supported yet"));
    }
    let authority = trimmed.strip_prefix("http://").unwrap_or(trimmed);
    let parsed: tonic::codegen::http::uri::Authority =
        authority.parse().map_err(|_| invalid("it is not of the form host:port"))?;
    if parsed.port_u16().is_none() || parsed.host().is_empty() {
        return Err(invalid("the port is missing or not a number"));
    }
    Ok(format!("http://{authority}"))
}

fn number_after(text: &str, marker: &str) -> Option<u64> {
    let (_, rest) = text.split_once(marker)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An error with its causes; transport errors say nothing useful without them.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        // Some layers only repeat what is below them.
        if !text.ends_with(&words) {
            let _ = write!(text, ": {words}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_accepted_with_and_without_a_scheme() {
        for text in ["127.0.0.1:2379", "http://127.0.0.1:2379", "http://127.0.0.1:2379/", " 127.0.0.1:2379 "]
        {
            assert_eq!(to_url(text).unwrap(), "http://127.0.0.1:2379");
        }
        assert_eq!(to_url("[::1]:2379").unwrap(), "http://[::1]:2379");
    }

    #[test]
    fn an_address_without_a_port_is_refused_with_its_text() {
        for text in ["", "pd", "http://pd", "pd:", "pd:port", "https://pd:2379"] {
            let error = to_url(text).unwrap_err();
            assert!(
                matches!(&error, PdError::InvalidEndpoint { endpoint, .. } if endpoint == text),
                "{error}"
            );
        }
    }

    #[test]
    fn the_needed_cluster_is_read_from_the_refusal() {
        let text = "mismatch cluster id, need 7123 but got 99";
        assert_eq!(number_after(text, "need "), Some(7123));
        assert_eq!(number_after("no number", "need "), None);
    }
}
