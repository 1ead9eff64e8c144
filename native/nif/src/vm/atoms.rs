//! Atoms that native functions return. They are made once, when the library is loaded. The word of an atom
//! never changes in a VM.

use crate::vm::{Env, Term};
use cats_sync::facade::{AtomicU64, Ordering};

macro_rules! atoms {
    ($($name:ident = $text:literal),* $(,)?) => {
        #[allow(non_upper_case_globals)]
        mod words {
            use super::AtomicU64;
            $(pub static $name: AtomicU64 = AtomicU64::new(0);)*
        }

        $(
            #[doc = concat!("The atom `", $text, "`.")]
            #[inline]
            pub fn $name() -> Term {
                // Relaxed: the words are written before the VM allows any call of the library.
                Term(words::$name.load(Ordering::Relaxed))
            }
        )*

        /// Makes all atoms. Called when the library is loaded, before any other function of it.
        pub fn make(env: Env) {
            // Relaxed: as for the loads.
            $(words::$name.store(env.atom($text).0, Ordering::Relaxed);)*
        }
    };
}

atoms! {
    access = "access",
    again = "again",
    alarm_handler = "alarm_handler",
    already_exists = "already_exists",
    auto = "auto",
    badkey = "badkey",
    bag = "bag",
    base_nodes = "base_nodes",
    binary = "binary",
    busy = "busy",
    bytes = "bytes",
    chunk = "chunk",
    compressed = "compressed",
    conflict = "conflict",
    counters = "counters",
    debug_hash_fixed_number_of_locks = "debug_hash_fixed_number_of_locks",
    decentralized_counters = "decentralized_counters",
    default = "default",
    dirty = "dirty",
    duplicate_bag = "duplicate_bag",
    end_of_table = "$end_of_table",
    engine = "engine",
    ets_transfer = "ETS-TRANSFER",
    evict = "evict",
    exit = "EXIT",
    false_ = "false",
    fetch_failed = "fetch_failed",
    fetch_made = "fetch_made",
    fetch_stale = "fetch_stale",
    fetch_waited = "fetch_waited",
    fixed = "fixed",
    full = "full",
    heir = "heir",
    id = "id",
    idle = "idle",
    infinity = "infinity",
    inside_transaction = "inside_transaction",
    integer = "integer",
    invalid_option = "invalid_option",
    keep = "keep",
    keypos = "keypos",
    limit = "limit",
    logged = "logged",
    mark = "$cats_failure",
    match_ = "match",
    match_delete = "match_delete",
    match_object = "match_object",
    memory = "memory",
    memory_limit = "memory_limit",
    name = "name",
    named_table = "named_table",
    node = "node",
    no_expiry = "no_expiry",
    no_order_statistics = "no_order_statistics",
    no_contention = "no_contention",
    no_ranges = "no_ranges",
    no_snapshots = "no_snapshots",
    no_transactions = "no_transactions",
    none = "none",
    not_owner = "not_owner",
    objects = "objects",
    ok = "ok",
    ordered_set = "ordered_set",
    other_key = "other_key",
    overflow = "overflow",
    owned = "owned",
    owner = "owner",
    panic = "panic",
    position = "position",
    preferred = "preferred",
    private = "private",
    protected = "protected",
    protection = "protection",
    public = "public",
    read_concurrency = "read_concurrency",
    settings = "settings",
    repeated_option = "repeated_option",
    safe_fixed = "safe_fixed",
    safe_fixed_monotonic_time = "safe_fixed_monotonic_time",
    returned = "returned",
    reversed = "reversed",
    select = "select",
    select_count = "select_count",
    select_delete = "select_delete",
    select_replace = "select_replace",
    select_reverse = "select_reverse",
    set = "set",
    size = "size",
    share = "share",
    slice = "slice",
    snapshot = "snapshot",
    snapshot_limit = "snapshot_limit",
    stats = "stats",
    system_limit = "system_limit",
    table_type = "table_type",
    thread = "thread",
    too_large = "too_large",
    too_many_tables = "too_many_tables",
    trace = "trace",
    true_ = "true",
    ttl = "ttl",
    type_ = "type",
    undefined = "undefined",
    underscore = "_",
    used = "used",
    wait = "wait",
    write = "write",
    write_concurrency = "write_concurrency",
}

/// `true` or `false`.
#[inline]
pub fn boolean(value: bool) -> Term {
    if value {
        true_()
    } else {
        false_()
    }
}
