//! Option `notify` of `new/2`, and `removed/1`: a process is told what a table has removed by itself.

use super::*;
use cats_table::notices::{Notices, Options, Why};
use std::sync::Arc;

/// What is told by default.
const DEFAULT: Options = Options {
    expired: true,
    evicted: true,
    keys: false,
    queue: 10_000,
    batch: 500,
    interval: 100,
};

/// `{notify, Pid}` or `{notify, Pid, Options}`.
#[cold]
pub(super) fn option(env: Env, option: Term) -> Option<(Term, Options)> {
    let (what, pid, mut rest) = match *env.tuple_elements(option)? {
        [what, pid] => (what, pid, Term(NIL)),
        [what, pid, options] => (what, pid, options),
        _ => return None,
    };
    if what != env.atom("notify") {
        return None;
    }
    env.local_pid(pid)?;
    let mut options = DEFAULT;
    while let Some((head, tail)) = env.cell(rest) {
        let &[name, value] = env.tuple_elements(head)? else {
            return None;
        };
        let number = || value.small_integer().and_then(|number| usize::try_from(number).ok());
        let positive = || number().filter(|number| *number > 0);
        if name == env.atom("events") {
            (options.expired, options.evicted) = events(env, value)?;
        } else if name == env.atom("send") {
            options.keys = value == env.atom("keys");
            if !options.keys && value != atoms::objects() {
                return None;
            }
        } else if name == env.atom("queue") {
            options.queue = positive()?;
        } else if name == env.atom("batch") {
            options.batch = positive()?;
        } else if name == env.atom("interval") {
            options.interval = number()? as u64;
        } else {
            return None;
        }
        rest = tail;
    }
    (rest.0 == NIL).then_some((pid, options))
}

/// A list of some of `expired` and `evicted`.
fn events(env: Env, mut list: Term) -> Option<(bool, bool)> {
    let (mut expired, mut evicted) = (false, false);
    while let Some((head, tail)) = env.cell(list) {
        expired |= head == env.atom("expired");
        evicted |= head == env.atom("evicted");
        if head != env.atom("expired") && head != env.atom("evicted") {
            return None;
        }
        list = tail;
    }
    (list.0 == NIL && (expired || evicted)).then_some((expired, evicted))
}

/// Lets a process be told what a table removes that nobody knows yet.
pub(super) fn set(env: Env, table: &Table, pid: Term, options: Options) -> Result<(), Failure> {
    let notices = Arc::new(Notices::new(pid.0, options));
    notices.set_message(message(env, table)?);
    match table.set_notices(notices) {
        true => Ok(()),
        false => Err(Failure::Bad(env.atom("nothing_removed"))),
    }
}

/// The message names the table as it is named now.
fn message(env: Env, table: &Table) -> Result<Block, Failure> {
    let message = env.tuple(&[env.atom("cats_removed"), designation(env, table)]);
    block(env, &[message])
}

/// To be called when a table has another name.
pub(super) fn renamed(env: Env, handle: Handle<'_>) -> Result<(), Failure> {
    if let Some(notices) = handle.notices().filter(|_| handle.table().options().named()) {
        notices.set_message(message(env, handle.table())?);
    }
    Ok(())
}

/// What `info(Table, notify)` tells: `{Pid, Options}`, or `undefined`.
pub(super) fn info(env: Env, handle: Handle<'_>) -> Term {
    let Some(notices) = handle.notices().filter(|notices| !notices.is_off()) else {
        return atoms::undefined();
    };
    let options = notices.options();
    let events = [("expired", options.expired), ("evicted", options.evicted)];
    let events: Vec<Term> = events
        .iter()
        .filter(|(_, told)| *told)
        .map(|(name, _)| env.atom(name))
        .collect();
    let option = |name, value| env.tuple(&[env.atom(name), value]);
    let number = |value: usize| env.unsigned(value as u64);
    let list = env.list(&[
        option("events", env.list(&events)),
        option(
            "send",
            if options.keys {
                env.atom("keys")
            } else {
                atoms::objects()
            },
        ),
        option("queue", number(options.queue)),
        option("batch", number(options.batch)),
        option("interval", env.unsigned(options.interval)),
    ]);
    env.tuple(&[Term(notices.receiver()), list])
}

/// `{Removed, Lost}`: a list of pairs of the reason and the object, or its key, and how many more there were for which the queue had no
/// room.
pub fn removed(env: Env, &[table]: &[Term; 1]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INFO)?;
    let Some(notices) = handle.notices() else {
        return Err(Failure::Bad(env.atom("no_notices")));
    };
    if notices.receiver() != env.this_process().0 {
        return Err(Failure::Bad(env.atom("not_receiver")));
    }
    let (expired, evicted) = (env.atom("expired"), env.atom("evicted"));
    let (batch, lost) = notices.take(SCHEDULER_WORDS.0).map_err(|_| Failure::Busy)?;
    let (mut removed, mut words) = (Vec::with_capacity(batch.len()), 0);
    handle.show_removed(batch, |object, why| {
        let what = match notices.options().keys {
            true => decode::term(env, object.element(handle.table().key()))?,
            false => tuple(env, object)?,
        };
        words += object.words();
        removed.push(env.tuple(&[if why == Why::Expired { expired } else { evicted }, what]));
        Ok::<(), Failure>(())
    })?;
    account(env, words + removed.len() * 50);
    Ok(env.tuple(&[env.list(&removed), env.unsigned(lost as u64)]))
}
