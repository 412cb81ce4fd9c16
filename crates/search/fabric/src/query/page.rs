//! Page tokens. All pages of one request come from one published state, which is kept while somebody may turn
//! its pages.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_contract::fingerprint::Fingerprint;
use tidegate_core::MonoTime;

use super::request::SearchRequest;
use crate::engine::View;
use crate::error::QueryError;

/// States kept for page turning. Each holds files and pages of the store that could otherwise be reused.
const KEPT_MAX: usize = 16;
/// How long a state is kept after its last page: longer than a person looks at one.
const KEPT_MS: u64 = 60_000;
/// Deepest position that pages reach; every hit before it is ranked again for each page. A scan goes further.
pub(crate) const DEPTH_MAX: usize = 10_000;
/// Hexadecimal digits of the request's fingerprint in a token.
const DIGEST_DIGITS: usize = 16;

/// States that page tokens point into.
#[derive(Default)]
pub(crate) struct Kept {
    views: Mutex<VecDeque<(MonoTime, Arc<View>)>>,
}

impl Kept {
    /// Keeps a state for the next page.
    pub(crate) fn keep(&self, view: &Arc<View>, now: MonoTime) {
        let mut views = self.views.lock();
        views.retain(|(at, kept)| {
            kept.group != view.group && now.since(*at).as_millis() < u128::from(KEPT_MS)
        });
        views.push_back((now, view.clone()));
        if views.len() > KEPT_MAX {
            views.pop_front();
        }
    }

    /// The state of a token.
    pub(crate) fn find(&self, group: u64, now: MonoTime) -> Option<Arc<View>> {
        let views = self.views.lock();
        let found = views.iter().find(|(_, view)| view.group == group)?;
        (now.since(found.0).as_millis() < u128::from(KEPT_MS)).then(|| found.1.clone())
    }
}

/// Where a page begins, in which state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) group: u64,
    pub(crate) offset: usize,
}

/// Names a request apart from which page of it is asked for, and how fresh it must be.
fn digest(request: &SearchRequest) -> Result<String, QueryError> {
    let plain = SearchRequest { page_token: None, read: Default::default(), ..request.clone() };
    let bytes = serde_json::to_vec(&plain).map_err(|_| QueryError::PageToken("cannot be made"))?;
    Ok(Fingerprint::of(&bytes).to_string().chars().take(DIGEST_DIGITS).collect())
}

/// The token of a position in the pages of a request.
pub(crate) fn token(request: &SearchRequest, at: Position) -> Result<String, QueryError> {
    Ok(format!("{}.{}.{}", at.group, at.offset, digest(request)?))
}

/// The position of a token; refused if it belongs to another request.
pub(crate) fn position(request: &SearchRequest, token: &str) -> Result<Position, QueryError> {
    let malformed = || QueryError::PageToken("is not one of ours");
    let mut parts = token.splitn(3, '.');
    let mut number = || parts.next().and_then(|part| part.parse().ok()).ok_or_else(malformed);
    let (group, offset): (u64, u64) = (number()?, number()?);
    if parts.next() != Some(digest(request)?.as_str()) {
        return Err(QueryError::PageToken("belongs to another request"));
    }
    Ok(Position { group, offset: usize::try_from(offset).map_err(|_| malformed())? })
}
