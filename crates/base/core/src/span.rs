//! Half-open ranges of encoded keys.

use std::fmt;

use bytes::Bytes;

/// A range `[start, end)` of memcomparable-encoded keys, as regions and subscriptions use them. An empty
/// `start` is minus infinity, an empty `end` plus infinity (`reference/pd-protocol.md` §6.1).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Span {
    /// First key inside; empty means "from the beginning".
    pub start: Bytes,
    /// First key outside; empty means "to the end".
    pub end: Bytes,
}

impl Span {
    /// A span over `[start, end)`.
    pub fn new(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Self { start: start.into(), end: end.into() }
    }

    /// The span of all keys.
    pub const fn all() -> Self {
        Self { start: Bytes::new(), end: Bytes::new() }
    }

    /// Whether no key can be inside.
    pub fn is_empty(&self) -> bool {
        !self.end.is_empty() && self.start >= self.end
    }

    /// Whether `key` (encoded) lies inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_ref() <= key && (self.end.is_empty() || key < self.end.as_ref())
    }

    /// Whether `other` lies wholly inside.
    pub fn covers(&self, other: &Self) -> bool {
        self.start <= other.start && !end_before(&self.end, &other.end)
    }

    /// The common part, if there is one.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let start = if self.start >= other.start { &self.start } else { &other.start };
        let end = if end_before(&self.end, &other.end) { &self.end } else { &other.end };
        let common = Self { start: start.clone(), end: end.clone() };
        (!common.is_empty()).then_some(common)
    }
}

/// Whether the end bound `a` lies strictly before the end bound `b`; an empty bound is plus infinity.
pub fn end_before(a: &[u8], b: &[u8]) -> bool {
    match (a.is_empty(), b.is_empty()) {
        (true, _) => false,
        (false, true) => true,
        (false, false) => a < b,
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", Hex(&self.start), Hex(&self.end))
    }
}

/// Displays bytes as lower-case hex; for keys in messages, which carry no row values.
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: &'static str, end: &'static str) -> Span {
        Span::new(start, end)
    }

    #[test]
    fn an_empty_end_is_plus_infinity_and_not_the_smallest_key() {
        assert!(span("b", "").contains(b"zzz"));
        assert!(!span("b", "").contains(b"a"));
        assert!(end_before(b"z", b"") && !end_before(b"", b"z") && !end_before(b"", b""));
    }

    #[test]
    fn intersections_are_the_common_part_or_nothing() {
        assert_eq!(span("a", "m").intersect(&span("g", "")), Some(span("g", "m")));
        assert_eq!(span("", "").intersect(&span("g", "h")), Some(span("g", "h")));
        assert_eq!(span("a", "g").intersect(&span("g", "h")), None);
    }

    #[test]
    fn a_span_covers_what_lies_inside_it() {
        assert!(span("a", "").covers(&span("b", "")) && span("a", "c").covers(&span("a", "c")));
        assert!(!span("a", "c").covers(&span("b", "")) && !span("b", "c").covers(&span("a", "c")));
    }
}
