//! The timestamp oracle (`reference/pd-protocol.md` §5): strictly increasing, above everything that was
//! recorded, and following a clock.

use tidegate_core::Ts;
use tidegate_core::ts::LOGICAL_BITS;

/// How many timestamps one millisecond holds; a batch never spans two.
const LOGICAL_LIMIT: u64 = 1 << LOGICAL_BITS;

/// Where the oracle's time starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OracleStart {
    /// The wall clock, or the end of the loaded history if that is later. Ages of changes are then what a
    /// clock on the wall shows. With a live replay it means the same as `Recorded`.
    #[default]
    Wall,
    /// The end of what is loaded at start: time goes on where the recording stopped.
    Recorded,
}

/// Hands out timestamps. Oracle time runs at `speed` times the wall clock up to `fast_until_ms` and in real
/// time afterwards.
pub(crate) struct Oracle {
    anchor_wall_ms: u64,
    anchor_ms: u64,
    speed: f64,
    fast_until_ms: u64,
    last: Ts,
}

impl Oracle {
    /// An oracle in real time, starting at `start_ms` or above `floor`, whichever is later.
    pub(crate) fn real_time(wall_ms: u64, start_ms: u64, floor: Ts) -> Self {
        let anchor_ms = start_ms.max(floor.physical_ms());
        Self { anchor_wall_ms: wall_ms, anchor_ms, speed: 1.0, fast_until_ms: anchor_ms, last: floor }
    }

    /// An oracle that starts just above `from` and runs at `speed` until `until`.
    pub(crate) fn replaying(wall_ms: u64, from: Ts, until: Ts, speed: f64) -> Self {
        Self {
            anchor_wall_ms: wall_ms,
            anchor_ms: from.physical_ms(),
            speed,
            fast_until_ms: until.physical_ms(),
            last: from,
        }
    }

    /// The next `count` timestamps, all in one millisecond; returns the last of them. Zero counts as one and
    /// more than a millisecond holds as that many.
    pub(crate) fn allocate(&mut self, wall_ms: u64, count: u64) -> Ts {
        let count = count.clamp(1, LOGICAL_LIMIT - 1);
        let now_ms = self.now_ms(wall_ms);
        let (last_ms, last_logical) = (self.last.physical_ms(), self.last.logical());
        self.last = if now_ms > last_ms {
            Ts::from_parts(now_ms, count)
        } else if last_logical + count < LOGICAL_LIMIT {
            Ts::from_parts(last_ms, last_logical + count)
        } else {
            Ts::from_parts(last_ms + 1, count)
        };
        self.last
    }

    /// The last timestamp handed out.
    pub(crate) fn last(&self) -> Ts {
        self.last
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "milliseconds of a replay are far below 2^52, and a float cast saturates"
    )]
    fn now_ms(&self, wall_ms: u64) -> u64 {
        let elapsed_ms = wall_ms.saturating_sub(self.anchor_wall_ms);
        let fast_ms = self.fast_until_ms.saturating_sub(self.anchor_ms);
        let fast_wall_ms = (fast_ms as f64 / self.speed).ceil() as u64;
        if elapsed_ms < fast_wall_ms {
            self.anchor_ms + (elapsed_ms as f64 * self.speed) as u64
        } else {
            self.anchor_ms + fast_ms + (elapsed_ms - fast_wall_ms)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_increase_even_when_the_clock_stands_still_or_goes_back() {
        let mut oracle = Oracle::real_time(1_000, 1_000, Ts::ZERO);
        let first = oracle.allocate(1_000, 1);
        let second = oracle.allocate(1_000, 5);
        let third = oracle.allocate(400, 1);
        assert_eq!((first.physical_ms(), first.logical()), (1_000, 1));
        assert_eq!((second.physical_ms(), second.logical()), (1_000, 6));
        assert_eq!((third.physical_ms(), third.logical()), (1_000, 7));
        assert_eq!(oracle.allocate(1_001, 1), Ts::from_parts(1_001, 1));
    }

    #[test]
    fn a_batch_that_does_not_fit_its_millisecond_moves_to_the_next_as_a_whole() {
        let mut oracle = Oracle::real_time(0, 10, Ts::ZERO);
        oracle.allocate(0, LOGICAL_LIMIT - 10);
        assert_eq!(oracle.allocate(0, 20), Ts::from_parts(11, 20));
    }

    #[test]
    fn a_floor_above_the_wall_clock_shifts_time_and_lets_it_run() {
        let mut oracle = Oracle::real_time(1_000, 1_000, Ts::from_parts(5_000, 3));
        assert_eq!(oracle.allocate(1_000, 1), Ts::from_parts(5_000, 4));
        assert_eq!(oracle.allocate(1_250, 1), Ts::from_parts(5_250, 1));
    }

    #[test]
    fn a_replay_runs_at_its_speed_to_its_end_and_then_in_real_time() {
        let mut oracle = Oracle::replaying(0, Ts::from_parts(1_000, 9), Ts::from_parts(2_000, 0), 10.0);
        assert_eq!(oracle.allocate(50, 1).physical_ms(), 1_500);
        assert_eq!(oracle.allocate(100, 1).physical_ms(), 2_000);
        assert_eq!(oracle.allocate(150, 1).physical_ms(), 2_050);
    }
}
