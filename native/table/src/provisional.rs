//! A stand-in for the engines, while they are being written: a sorted vector behind a lock.

use cats_engine::*;
use cats_sync::epoch::Guard;
use std::cmp::Ordering;
use std::sync::Mutex;

pub struct Ca<S>(S, Mutex<Vec<Entry>>);

trait Rank<P: ?Sized>: Send + Sync {
    fn rank(&self, probe: &P, entry: Entry) -> Ordering;
    fn list(&self) -> &Mutex<Vec<Entry>>;
    fn find(&self, list: &[Entry], probe: &P) -> Result<usize, usize> {
        list.binary_search_by(|entry| self.rank(probe, *entry).reverse())
    }
    fn put(&self, list: &mut Vec<Entry>, probe: &P, step: Step) {
        let place = self.find(list, probe);
        match (step, place) {
            (Step::Put(entry), Ok(at)) => list[at] = entry,
            (Step::Put(entry), Err(at)) => list.insert(at, entry),
            (Step::Remove, Ok(at)) => {
                list.remove(at);
            }
            _ => (),
        }
    }
}

impl<S: OrderedSchema> Rank<S::Probe> for Ca<S> {
    fn rank(&self, probe: &S::Probe, entry: Entry) -> Ordering {
        unsafe { self.0.compare(probe, entry) }
    }
    fn list(&self) -> &Mutex<Vec<Entry>> {
        &self.1
    }
}

struct Many<'a, P: ?Sized, E>(&'a E, &'a mut Vec<Entry>, &'a [&'a P]);

impl<P: ?Sized, E: Rank<P>> Locked for Many<'_, P, E> {
    fn get(&self, i: usize) -> Option<Entry> {
        self.0.find(self.1, self.2[i]).ok().map(|at| self.1[at])
    }
    fn step(&mut self, i: usize, step: Step) {
        self.0.put(self.1, self.2[i], step)
    }
}

#[derive(Default, Clone, Copy)]
pub struct At(Option<(u64, u64)>);
impl Cursor for At {}

macro_rules! engine {
    ($name:ident, $schema:ident) => {
        impl<S: $schema> $name<S> {
            pub fn new(schema: S) -> Option<Self> {
                Some(Self(schema, Mutex::default()))
            }
        }

        impl<S: $schema> Engine<S> for $name<S> {
            type Cursor = At;
            fn read<R>(
                &self,
                _: &Guard,
                probe: &S::Probe,
                mut look: impl FnMut(Option<Entry>) -> R,
            ) -> Result<R, Busy> {
                let list = self.list().lock().unwrap();
                Ok(look(self.find(&list, probe).ok().map(|at| list[at])))
            }
            fn update<R>(
                &self,
                _: &Guard,
                probe: &S::Probe,
                change: impl FnOnce(Option<Entry>) -> (Step, R),
            ) -> Result<R, Busy> {
                let mut list = self.list().lock().unwrap();
                let (step, result) = change(self.find(&list, probe).ok().map(|at| list[at]));
                self.put(&mut list, probe, step);
                Ok(result)
            }
            fn update_many<R>(
                &self,
                _: &Guard,
                probes: &[&S::Probe],
                change: impl FnOnce(&mut dyn Locked) -> R,
            ) -> Result<R, Busy> {
                let mut list = self.list().lock().unwrap();
                Ok(change(&mut Many(self, &mut list, probes)))
            }
            fn scan<T>(
                &self,
                _: &Guard,
                cursor: &mut At,
                limit: usize,
                out: &mut Vec<T>,
                mut expand: impl FnMut(Entry, &mut Vec<T>),
            ) -> Result<bool, Busy> {
                let list = self.list().lock().unwrap();
                let mut count = 0;
                for entry in list.iter() {
                    let key = (hash_of(entry.key), entry.key);
                    if cursor.0.is_some_and(|at| key <= at) {
                        continue;
                    }
                    count += 1;
                    if count > limit {
                        return Ok(true);
                    }
                    cursor.0 = Some(key);
                    expand(*entry, out);
                }
                Ok(false)
            }
            fn next<R>(
                &self,
                _: &Guard,
                after: Option<&S::Probe>,
                mut look: impl FnMut(Option<Entry>) -> R,
            ) -> Result<R, Busy> {
                let list = self.list().lock().unwrap();
                let at = after.map_or(0, |probe| {
                    self.find(&list, probe).map_or_else(|at| at, |at| at + 1)
                });
                Ok(look(list.get(at).copied()))
            }
            fn buckets(&self) -> usize {
                self.list().lock().unwrap().len()
            }
            fn slot<T>(
                &self,
                _: &Guard,
                number: usize,
                mut expand: impl FnMut(Entry, &mut Vec<T>),
            ) -> Result<Option<Vec<T>>, Busy> {
                let list = self.list().lock().unwrap();
                Ok(list.get(number).map(|entry| {
                    let mut out = Vec::new();
                    expand(*entry, &mut out);
                    out
                }))
            }
            fn bytes(&self) -> usize {
                self.list().lock().unwrap().len() * 16
            }
            fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
                let mut list = self.list().lock().unwrap();
                for _ in 0..limit {
                    match list.pop() {
                        Some(entry) => free(entry),
                        None => return true,
                    }
                }
                list.is_empty()
            }
        }
    };
}

engine!(Ca, OrderedSchema);

impl<S: OrderedSchema> OrderedEngine<S> for Ca<S> {
    fn prev<R>(
        &self,
        _: &Guard,
        before: Option<&S::Probe>,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        let list = self.list().lock().unwrap();
        let at = before.map_or(list.len(), |probe| self.find(&list, probe).unwrap_or_else(|at| at));
        Ok(look(at.checked_sub(1).map(|at| list[at])))
    }
    fn range<T>(
        &self,
        _: &Guard,
        from: Option<&S::Probe>,
        inclusive: bool,
        down: bool,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let list = self.list().lock().unwrap();
        let fits = |entry: Entry| {
            from.is_none_or(|probe| {
                let order = self.rank(probe, entry);
                order == Ordering::Equal && inclusive || order == if down { Ordering::Greater } else { Ordering::Less }
            })
        };
        let mut some: Vec<Entry> = list.iter().copied().filter(|entry| fits(*entry)).collect();
        if down {
            some.reverse();
        }
        some.iter().take(limit).for_each(|entry| expand(*entry, out));
        Ok(some.len() > limit)
    }
    fn base_nodes(&self) -> usize {
        1
    }
}
