//! The objects of a step that may match, in the order of a scan.

use std::cmp::Ordering;

/// An object that may match.
#[derive(Clone, Copy, Default)]
pub(super) struct Candidate {
    /// Its [place](cats_table::Met::place), where objects are to be put in order.
    pub(super) place: u64,
    /// Which one of the objects that were met it is, and above [`INDEX_BITS`] the clause for which it is a candidate.
    index_and_clause: u64,
}

const INDEX_BITS: u32 = 32;

impl Candidate {
    #[inline(always)]
    pub(super) fn new(place: u64, index: usize, clause: usize) -> Self {
        Self {
            place,
            index_and_clause: index as u64 | (clause as u64) << INDEX_BITS,
        }
    }

    #[inline(always)]
    pub(super) fn index(self) -> usize {
        self.index_and_clause as u32 as usize
    }

    #[inline(always)]
    pub(super) fn clause(self) -> usize {
        (self.index_and_clause >> INDEX_BITS) as usize
    }
}

/// Puts candidates in the order that `precedes` gives. It agrees with the order of their places.
///
/// Buckets come in order, so few candidates overtake another. A *run* is the shortest stretch that none has to leave. `least` is
/// working memory.
pub(super) fn arrange(
    candidates: &mut [Candidate],
    least: &mut Vec<u64>,
    precedes: impl Fn(&Candidate, &Candidate) -> bool,
) {
    // The least place from each candidate on.
    least.clear();
    least.resize(candidates.len(), u64::MAX);
    let mut low = u64::MAX;
    for (candidate, least) in candidates.iter().zip(least.iter_mut()).rev() {
        low = low.min(candidate.place);
        *least = low;
    }
    let (mut begin, mut high) = (0, 0);
    for end in 1..=candidates.len() {
        high = high.max(candidates[end - 1].place);
        if least.get(end).is_none_or(|least| high < *least) {
            let run = &mut candidates[begin..end];
            match run.len() {
                0..=1 => (),
                2..=8 => sort_by_rank::<8>(run, least[begin], high, &precedes),
                9..=16 => sort_by_rank::<16>(run, least[begin], high, &precedes),
                _ => sort_by_moves(run, &precedes),
            }
            begin = end;
        }
    }
}

/// Bits of a key that tell lanes apart.
const LANE_BITS: u32 = 4;

/// Sorts a run of at most `LANES` candidates between two places: counts for each how many come before it, in vectors and without a
/// branch. A branch for each comparison would be mispredicted every other time.
fn sort_by_rank<const LANES: usize>(
    run: &mut [Candidate],
    low: u64,
    high: u64,
    precedes: impl Fn(&Candidate, &Candidate) -> bool,
) {
    // Keys of 31 bits: as much of the places as there is room for, and the lane, so that no two are equal.
    let kept = i32::BITS - 1 - LANE_BITS;
    let shift = (u64::BITS - (high - low).leading_zeros()).saturating_sub(kept);
    let mut keys = [i32::MAX; LANES];
    for (lane, (key, candidate)) in keys.iter_mut().zip(run.iter()).enumerate() {
        *key = ((candidate.place - low) >> shift << LANE_BITS) as i32 | lane as i32;
    }
    let mut ranks = [0_i32; LANES];
    for other in keys {
        for (rank, key) in ranks.iter_mut().zip(keys) {
            *rank += i32::from(other < key);
        }
    }
    let mut sorted = [Candidate::default(); LANES];
    for (candidate, rank) in run.iter().zip(ranks) {
        sorted[rank as usize % LANES] = *candidate;
    }
    run.copy_from_slice(&sorted[..run.len()]);
    // Candidates that share the bits of a key.
    sort_by_moves(run, precedes);
}

/// Moves of a candidate from which on another way of sorting is quicker, on average.
const MOVES: usize = 8;

/// Sorts candidates of which nearly all are where they belong.
fn sort_by_moves(candidates: &mut [Candidate], precedes: impl Fn(&Candidate, &Candidate) -> bool) {
    let mut moves = 0;
    for end in 1..candidates.len() {
        let candidate = candidates[end];
        let mut place = end;
        while place > 0 && precedes(&candidate, &candidates[place - 1]) {
            candidates[place] = candidates[place - 1];
            place -= 1;
        }
        candidates[place] = candidate;
        moves += end - place;
        if moves > MOVES * (end + MOVES) {
            return candidates.sort_unstable_by(|a, b| match precedes(a, b) {
                true => Ordering::Less,
                false => Ordering::Greater,
            });
        }
    }
}
