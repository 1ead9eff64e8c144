//! What `new/2` can ask of a table. How the option list is read is the boundary's affair; how options act on each other is ETS'
//! and stands here: a later option overrides an earlier one, but `set` and `protected` ask for nothing.

/// The four table types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Set,
    OrderedSet,
    Bag,
    DuplicateBag,
}

impl Kind {
    /// Whether a key may have several objects.
    #[inline]
    pub fn is_bag(self) -> bool {
        matches!(self, Kind::Bag | Kind::DuplicateBag)
    }
}

/// Who may do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Access {
    /// Everyone reads and writes.
    Public = 0,
    /// Everyone reads, the owner writes.
    Protected = 1,
    /// The owner reads and writes.
    Private = 2,
}

/// The value of `write_concurrency`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteConcurrency {
    False,
    True,
    Auto,
}

/// The table structure, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineName {
    Hash,
    Ca,
}

/// One option, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionItem {
    Kind(Kind),
    Access(Access),
    NamedTable,
    Compressed,
    KeyPosition(u32),
    WriteConcurrency(WriteConcurrency),
    ReadConcurrency(bool),
    DecentralizedCounters(bool),
    Engine(EngineName),
}

/// The options of a table as they came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub kind: Kind,
    pub access: Access,
    pub named: bool,
    pub compressed: bool,
    /// From 1.
    pub key_position: u32,
    pub write_concurrency: WriteConcurrency,
    pub read_concurrency: bool,
    pub decentralized_counters: bool,
    pub engine: EngineName,
}

/// Collects options in the order of the list.
#[derive(Debug)]
pub struct Collect {
    options: Options,
    engine: Option<EngineName>,
    decentralized: Option<bool>,
}

impl Default for Collect {
    fn default() -> Self {
        Self {
            options: Options {
                kind: Kind::Set,
                access: Access::Protected,
                named: false,
                compressed: false,
                key_position: 1,
                write_concurrency: WriteConcurrency::False,
                read_concurrency: false,
                decentralized_counters: false,
                engine: EngineName::Hash,
            },
            engine: None,
            decentralized: None,
        }
    }
}

impl Collect {
    /// Takes the next option of the list.
    pub fn add(&mut self, item: OptionItem) {
        let options = &mut self.options;
        match item {
            OptionItem::Kind(Kind::Set) | OptionItem::Access(Access::Protected) => (),
            OptionItem::Kind(kind) => {
                options.kind = kind;
                if kind == Kind::OrderedSet {
                    options.decentralized_counters = true;
                }
            }
            OptionItem::Access(access) => options.access = access,
            OptionItem::NamedTable => options.named = true,
            OptionItem::Compressed => options.compressed = true,
            OptionItem::KeyPosition(position) => options.key_position = position,
            OptionItem::WriteConcurrency(value) => {
                options.write_concurrency = value;
                match value {
                    WriteConcurrency::Auto => options.decentralized_counters = true,
                    WriteConcurrency::True if options.kind != Kind::OrderedSet => {
                        options.decentralized_counters = false
                    }
                    _ => (),
                }
            }
            OptionItem::ReadConcurrency(value) => options.read_concurrency = value,
            OptionItem::DecentralizedCounters(value) => self.decentralized = Some(value),
            OptionItem::Engine(engine) => self.engine = Some(engine),
        }
    }

    /// The options of the table; nothing when the engine cannot hold the table type.
    pub fn finish(self) -> Option<Options> {
        let mut options = self.options;
        options.decentralized_counters = self.decentralized.unwrap_or(options.decentralized_counters);
        // A private table has no use for concurrency, and ETS says so in `info`.
        if options.access == Access::Private {
            options.write_concurrency = WriteConcurrency::False;
            options.read_concurrency = false;
        }
        if options.write_concurrency == WriteConcurrency::False {
            options.decentralized_counters = false;
        }
        let native = match options.kind {
            Kind::OrderedSet => EngineName::Ca,
            _ => EngineName::Hash,
        };
        options.engine = self.engine.unwrap_or(native);
        (options.engine == native).then_some(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(items: &[OptionItem]) -> Option<Options> {
        let mut collect = Collect::default();
        for item in items {
            collect.add(*item);
        }
        collect.finish()
    }

    #[test]
    fn later_options_override_but_defaults_do_not() {
        let options = collect(&[
            OptionItem::Kind(Kind::OrderedSet),
            OptionItem::Kind(Kind::Bag),
            OptionItem::Kind(Kind::Set),
            OptionItem::Access(Access::Public),
            OptionItem::Access(Access::Protected),
        ])
        .unwrap();
        assert_eq!(options.kind, Kind::Bag);
        assert_eq!(options.access, Access::Public);
    }

    #[test]
    fn counters_follow_type_and_concurrency() {
        let ordered = OptionItem::Kind(Kind::OrderedSet);
        let write = OptionItem::WriteConcurrency(WriteConcurrency::True);
        assert!(collect(&[ordered, write]).unwrap().decentralized_counters);
        assert!(collect(&[write, ordered]).unwrap().decentralized_counters);
        assert!(!collect(&[write]).unwrap().decentralized_counters);
        assert!(!collect(&[ordered]).unwrap().decentralized_counters);
        assert!(
            !collect(&[OptionItem::DecentralizedCounters(true)])
                .unwrap()
                .decentralized_counters
        );
    }

    #[test]
    fn an_engine_that_lacks_the_type_is_refused() {
        assert!(collect(&[OptionItem::Engine(EngineName::Ca)]).is_none());
        assert!(collect(&[OptionItem::Engine(EngineName::Hash), OptionItem::Kind(Kind::OrderedSet)]).is_none());
        assert!(collect(&[OptionItem::Engine(EngineName::Hash)]).is_some());
    }
}
