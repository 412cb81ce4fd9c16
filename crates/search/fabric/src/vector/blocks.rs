//! The exact index: blocks of vectors, scanned.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use hashbrown::HashMap;

use super::metric::{Metric, norm};

/// Vectors per block. Small enough that copying a block (64 KiB at 64 dimensions) is cheap beside one
/// commit, large enough that a scan spends its time in the arithmetic.
const BLOCK_ROWS: usize = 256;

/// One block. Row `i` holds the vector of document `ids[i]`.
#[derive(Clone, Debug, Default)]
struct Block {
    ids: Vec<u64>,
    norms: Vec<f32>,
    values: Vec<f32>,
}

/// A neighbour and how near it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbour {
    /// The document.
    pub id: u64,
    /// Similarity by the query's metric; greater is nearer.
    pub similarity: f32,
}

/// The writer's side. All rows but the last block's are full, so that a row number is a place.
#[derive(Debug)]
pub struct VectorIndex {
    metric: Metric,
    dimensions: usize,
    blocks: Vec<Arc<Block>>,
    rows: HashMap<u64, usize>,
}

/// What readers search: immutable and cheap to clone.
#[derive(Clone, Debug)]
pub struct VectorSnapshot {
    metric: Metric,
    dimensions: usize,
    blocks: Arc<[Arc<Block>]>,
    len: usize,
}

impl VectorIndex {
    /// An empty index of vectors with `dimensions` components.
    pub fn new(dimensions: usize, metric: Metric) -> Self {
        Self { metric, dimensions, blocks: Vec::new(), rows: HashMap::new() }
    }

    /// Components of each vector.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The measure of similarity.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Documents that have a vector.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no document has one.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Sets the vector of a document. Returns `false`, changing nothing, if it has other dimensions.
    pub fn put(&mut self, id: u64, vector: &[f32]) -> bool {
        if vector.len() != self.dimensions {
            return false;
        }
        let row = self.rows.get(&id).copied();
        match row {
            Some(row) if self.vector_at(row) == Some(vector) => {}
            Some(row) => self.overwrite(row, id, vector),
            None => {
                let row = self.rows.len();
                self.append(id, vector);
                self.rows.insert(id, row);
            }
        }
        true
    }

    /// Forgets a document's vector. The last row takes the place of the removed one.
    pub fn remove(&mut self, id: u64) {
        let Some(row) = self.rows.remove(&id) else { return };
        let Some((last_id, last_vector)) = self.pop() else { return };
        if last_id != id {
            self.rows.insert(last_id, row);
            self.overwrite(row, last_id, &last_vector);
        }
    }

    /// What readers may search from now on.
    pub fn snapshot(&self) -> VectorSnapshot {
        VectorSnapshot {
            metric: self.metric,
            dimensions: self.dimensions,
            blocks: self.blocks.as_slice().into(),
            len: self.rows.len(),
        }
    }

    fn vector_at(&self, row: usize) -> Option<&[f32]> {
        self.blocks.get(row / BLOCK_ROWS)?.vector(row % BLOCK_ROWS, self.dimensions)
    }

    fn overwrite(&mut self, row: usize, id: u64, vector: &[f32]) {
        let Some(block) = self.blocks.get_mut(row / BLOCK_ROWS) else { return };
        let (block, at) = (Arc::make_mut(block), row % BLOCK_ROWS);
        let values = block.values.get_mut(at * self.dimensions..(at + 1) * self.dimensions);
        if let (Some(slot), Some(stored_norm), Some(values)) =
            (block.ids.get_mut(at), block.norms.get_mut(at), values)
        {
            *slot = id;
            *stored_norm = norm(vector);
            values.copy_from_slice(vector);
        }
    }

    fn append(&mut self, id: u64, vector: &[f32]) {
        if self.blocks.last().is_none_or(|block| block.ids.len() == BLOCK_ROWS) {
            self.blocks.push(Arc::default());
        }
        let Some(block) = self.blocks.last_mut().map(Arc::make_mut) else { return };
        block.ids.push(id);
        block.norms.push(norm(vector));
        block.values.extend_from_slice(vector);
    }

    fn pop(&mut self) -> Option<(u64, Vec<f32>)> {
        let block = Arc::make_mut(self.blocks.last_mut()?);
        let id = block.ids.pop()?;
        block.norms.pop();
        let vector = block.values.split_off(block.values.len().saturating_sub(self.dimensions));
        if block.ids.is_empty() {
            self.blocks.pop();
        }
        Some((id, vector))
    }
}

impl Block {
    fn vector(&self, at: usize, dimensions: usize) -> Option<&[f32]> {
        self.values.get(at * dimensions..(at + 1) * dimensions)
    }

    /// Rows as (id, norm, vector).
    fn rows(&self, dimensions: usize) -> impl Iterator<Item = (u64, f32, &[f32])> {
        let vectors = self.values.chunks_exact(dimensions.max(1));
        self.ids.iter().zip(&self.norms).zip(vectors).map(|((id, norm), vector)| (*id, *norm, vector))
    }
}

/// Orders neighbours by similarity, then by smaller id, so that every order is total and repeatable.
#[derive(Clone, Copy, PartialEq)]
struct Ranked(Neighbour);

impl Eq for Ranked {}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.similarity.total_cmp(&other.0.similarity).then_with(|| other.0.id.cmp(&self.0.id))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl VectorSnapshot {
    /// Documents that have a vector.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no document has one.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Components of each vector.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The measure of similarity that the field declares.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The `k` documents that are nearest by `metric` among those that `admit` lets through, nearest first;
    /// exact. A query of other dimensions has no neighbours.
    pub fn nearest(
        &self,
        query: &[f32],
        metric: Metric,
        k: usize,
        admit: impl Fn(u64) -> bool,
    ) -> Vec<Neighbour> {
        if query.len() != self.dimensions || k == 0 {
            return Vec::new();
        }
        let query = (query, norm(query));
        let mut best: BinaryHeap<Reverse<Ranked>> = BinaryHeap::new();
        for (id, norm, vector) in self.blocks.iter().flat_map(|block| block.rows(self.dimensions)) {
            let found = Ranked(Neighbour { id, similarity: metric.similarity(query, (vector, norm)) });
            let full = best.len() >= k;
            if (full && best.peek().is_some_and(|worst| worst.0 >= found)) || !admit(id) {
                continue;
            }
            if full {
                best.pop();
            }
            best.push(Reverse(found));
        }
        best.into_sorted_vec().into_iter().map(|Reverse(found)| found.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn ids(found: &[Neighbour]) -> Vec<u64> {
        found.iter().map(|n| n.id).collect()
    }

    #[test]
    fn neighbours_come_nearest_first_and_ties_by_smaller_id() {
        let mut index = VectorIndex::new(2, Metric::L2);
        for (id, x) in [(5, 1.0), (3, 2.0), (9, 1.0), (1, 7.0)] {
            assert!(index.put(id, &[x, 0.0]));
        }
        assert_eq!(ids(&index.snapshot().nearest(&[1.0, 0.0], Metric::L2, 3, |_| true)), [5, 9, 3]);
        assert_eq!(ids(&index.snapshot().nearest(&[1.0, 0.0], Metric::L2, 3, |id| id != 5)), [9, 3, 1]);
    }

    #[test]
    fn a_vector_of_other_dimensions_is_refused() {
        let mut index = VectorIndex::new(2, Metric::Cosine);
        assert!(!index.put(1, &[1.0]) && index.is_empty());
        assert!(index.snapshot().nearest(&[1.0], Metric::Dot, 3, |_| true).is_empty());
    }

    #[test]
    fn a_snapshot_does_not_see_what_comes_after_it() {
        let mut index = VectorIndex::new(1, Metric::Dot);
        index.put(1, &[1.0]);
        let before = index.snapshot();
        index.put(1, &[9.0]);
        index.put(2, &[2.0]);
        assert_eq!(before.nearest(&[1.0], Metric::Dot, 9, |_| true), [Neighbour { id: 1, similarity: 1.0 }]);
    }

    proptest! {
        #[test]
        fn after_any_puts_and_removes_the_index_holds_what_a_map_would(
            steps in prop::collection::vec((0u64..600, prop::option::of(-100i8..100)), 0..1500),
        ) {
            let mut index = VectorIndex::new(2, Metric::Dot);
            let mut model = BTreeMap::new();
            for (id, value) in steps {
                match value {
                    Some(x) => {
                        index.put(id, &[f32::from(x), 1.0]);
                        model.insert(id, f32::from(x));
                    }
                    None => {
                        index.remove(id);
                        model.remove(&id);
                    }
                }
            }
            let found = index.snapshot().nearest(&[1.0, 0.0], Metric::Dot, 1000, |_| true);
            let mut held: Vec<_> = found.iter().map(|n| (n.id, n.similarity)).collect();
            held.sort_by_key(|(id, _)| *id);
            prop_assert_eq!(held, model.into_iter().collect::<Vec<_>>());
        }
    }
}
