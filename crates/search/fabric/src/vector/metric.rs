//! How similar two vectors are.

use serde::{Deserialize, Serialize};

/// A measure of similarity; greater is nearer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The cosine of the angle, from −1 to 1. A zero vector is at 0 from everything.
    #[default]
    Cosine,
    /// The dot product.
    Dot,
    /// The negative Euclidean distance.
    L2,
}

/// Lanes of independent partial sums: a loop of this shape is what compilers turn into SIMD code, since
/// floating-point addition may not be reordered otherwise.
const LANES: usize = 8;

/// Sums `term(a, b)` over both slices, as long as the shorter one, in [`LANES`] independent sums.
fn sum_over(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_chunks.iter().zip(b_chunks) {
        for ((lane, x), y) in lanes.iter_mut().zip(x).zip(y) {
            *lane += term(*x, *y);
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(x, y)| term(*x, *y)).sum();
    lanes.iter().sum::<f32>() + rest
}

/// The dot product.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum_over(a, b, |x, y| x * y)
}

/// The Euclidean norm.
pub(crate) fn norm(a: &[f32]) -> f32 {
    dot(a, a).sqrt()
}

impl Metric {
    /// The similarity of a query and a stored vector, both of known norm.
    pub(crate) fn similarity(self, query: (&[f32], f32), stored: (&[f32], f32)) -> f32 {
        match self {
            Self::Dot => dot(query.0, stored.0),
            Self::Cosine if query.1 == 0.0 || stored.1 == 0.0 => 0.0,
            Self::Cosine => dot(query.0, stored.0) / (query.1 * stored.1),
            Self::L2 => -sum_over(query.0, stored.0, |x, y| (x - y) * (x - y)).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn similarity(metric: Metric, a: &[f32], b: &[f32]) -> f32 {
        metric.similarity((a, norm(a)), (b, norm(b)))
    }

    #[test]
    fn the_metrics_agree_with_arithmetic_by_hand() {
        // (3,4)·(4,3) = 24; norms 5 and 5; the difference (−1,1) has length √2.
        assert!((similarity(Metric::Dot, &[3.0, 4.0], &[4.0, 3.0]) - 24.0).abs() < 1e-6);
        assert!((similarity(Metric::Cosine, &[3.0, 4.0], &[4.0, 3.0]) - 0.96).abs() < 1e-6);
        assert!((similarity(Metric::L2, &[3.0, 4.0], &[4.0, 3.0]) + 2.0_f32.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn lengths_beside_the_lane_width_lose_nothing() {
        for n in 0..40_u16 {
            let a: Vec<f32> = (0..n).map(f32::from).collect();
            // Σ i² for i < n is (n−1)n(2n−1)/6.
            let expected = f32::from(n.saturating_sub(1)) * f32::from(n) * (2.0 * f32::from(n) - 1.0) / 6.0;
            assert!((dot(&a, &a) - expected).abs() < 0.5, "{n}");
        }
    }

    #[test]
    fn a_zero_vector_is_similar_to_nothing() {
        assert_eq!(similarity(Metric::Cosine, &[0.0, 0.0], &[1.0, 0.0]), 0.0);
    }
}
