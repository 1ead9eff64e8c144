//! Records all memory accesses of a call, by running it one instruction at a time.
//!
//! The processor traps after each instruction while its trap flag is set. The handler of the trap only saves the registers. Later each
//! instruction is decoded, and its addresses are computed from the registers that it found. So nothing is missed: atomics, plain accesses,
//! copies, and the allocator.
//!
//! A call runs in a child of the process, made by `fork`. So each call starts from the same state, at the same addresses.

use cats_sync::facade::{AtomicPtr, Ordering};
use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use std::arch::asm;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;

/// Bytes of a cache line.
pub const LINE: u64 = 64;
/// Instructions of a call at most.
const STEPS: usize = 1 << 17;
/// The processor's trap flag, among the flags.
const TRAP: i32 = 0x100;

/// The registers before an instruction, in the order of `libc::REG_R8` and so on.
type Registers = [i64; 23];

/// What a child writes for its parent.
#[repr(C)]
struct Record {
    thread_pointer: u64,
    len: usize,
    answer: Answer,
    steps: [Registers; STEPS],
}

/// What a call returned: a few numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    len: usize,
    numbers: [i64; 12],
}

impl Answer {
    pub fn new() -> Self {
        Self {
            len: 0,
            numbers: [0; 12],
        }
    }

    pub fn push(&mut self, number: i64) {
        self.numbers[self.len] = number;
        self.len += 1;
    }

    /// The first number. Panics if there is none.
    pub fn first(&self) -> i64 {
        self.numbers[..self.len][0]
    }

    pub fn of(numbers: &[i64]) -> Self {
        let mut answer = Self::new();
        numbers.iter().for_each(|number| answer.push(*number));
        answer
    }
}

/// What a call did.
pub struct Trace {
    /// The cache lines that it used, by number. For one that it wrote, the address of the first instruction that did.
    pub lines: HashMap<u64, Option<u64>>,
    /// The address of the first atomic change: of a call that writes, this is the lock that it takes.
    pub lock: Option<u64>,
    pub answer: Answer,
}

/// The record that the handler writes to. Its accesses are relaxed: it is set before any thread records.
static RECORD: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());

extern "C" fn save(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context, and the record was mapped before.
    unsafe {
        let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let record = &mut *RECORD.load(Ordering::Relaxed);
        if let Some(step) = record.steps.get_mut(record.len) {
            *step = *registers;
        }
        record.len += 1;
    }
}

/// Maps the record, and installs the handler.
pub fn prepare() {
    // SAFETY: new memory, in which zeros are valid, and a handler that only writes there.
    unsafe {
        let record = libc::mmap(
            ptr::null_mut(),
            mem::size_of::<Record>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        assert_ne!(record, libc::MAP_FAILED, "no memory for the record");
        RECORD.store(record.cast(), Ordering::Relaxed);
        // A child that writes to a huge page would copy all of it.
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = save as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, ptr::null_mut()), 0);
    }
}

/// Runs a call in a child of this process, as this thread, and records its accesses. One thread at a time may do so.
pub fn record(call: &dyn Fn() -> Answer) {
    // SAFETY: the child only makes the call, and ends.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "cannot fork");
        if child == 0 {
            let record = &mut *RECORD.load(Ordering::Relaxed);
            record.len = 0;
            asm!("mov {}, fs:0", out(reg) record.thread_pointer);
            asm!("pushfq", "or dword ptr [rsp], {trap}", "popfq", trap = const TRAP);
            let answer = call();
            asm!("pushfq", "and dword ptr [rsp], {others}", "popfq", others = const !TRAP);
            record.answer = answer;
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0, "a call failed");
    }
}

/// Decodes the latest record.
pub struct Reader {
    instructions: HashMap<u64, Instruction>,
    factory: InstructionInfoFactory,
}

impl Reader {
    pub fn new() -> Self {
        Self {
            instructions: HashMap::new(),
            factory: InstructionInfoFactory::new(),
        }
    }

    pub fn read(&mut self) -> Trace {
        // SAFETY: the child that wrote it has ended.
        let record = unsafe { &*RECORD.load(Ordering::Relaxed) };
        assert!(record.len < STEPS, "a call of more than {STEPS} instructions");
        let mut trace = Trace {
            lines: HashMap::new(),
            lock: None,
            answer: record.answer,
        };
        for registers in &record.steps[..record.len] {
            let at = registers[libc::REG_RIP as usize] as u64;
            let instruction = *self.instructions.entry(at).or_insert_with(|| decode(at));
            let value = |register: Register, _, _| value_of(register, registers, record.thread_pointer);
            for used in self.factory.info(&instruction).used_memory() {
                let writes = match used.access() {
                    OpAccess::Read | OpAccess::CondRead => false,
                    OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite => true,
                    _ => continue,
                };
                let address = used.virtual_address(0, value).expect("an address of known registers");
                let size = used.memory_size().size() as u64;
                assert!(size > 0, "an access of unknown size: {:?}", instruction.code());
                if is_atomic_change(&instruction) {
                    trace.lock.get_or_insert(address);
                }
                trace.add(at, address, size, writes);
            }
            // A prefetch moves the line as a read does.
            if is_prefetch(&instruction) {
                let address = instruction.virtual_address(0, 0, value).expect("as above");
                trace.add(at, address, 1, false);
            }
        }
        trace
    }
}

impl Trace {
    fn add(&mut self, at: u64, address: u64, size: u64, writes: bool) {
        for line in address / LINE..=(address + size - 1) / LINE {
            let written = self.lines.entry(line).or_default();
            if writes {
                written.get_or_insert(at);
            }
        }
    }
}

fn decode(at: u64) -> Instruction {
    // SAFETY: an instruction that was executed is mapped. It has at most 15 bytes, and more code is behind it.
    let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, 15) };
    let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
    assert_ne!(instruction.code(), Code::INVALID);
    // The kernel's accesses would be missed.
    assert_ne!(
        instruction.mnemonic(),
        Mnemonic::Syscall,
        "an operation calls the kernel"
    );
    instruction
}

fn is_atomic_change(instruction: &Instruction) -> bool {
    instruction.has_lock_prefix()
        || instruction.mnemonic() == Mnemonic::Xchg
            && (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory)
}

fn is_prefetch(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
            | Mnemonic::Prefetchnta
            | Mnemonic::Prefetchw
    )
}

fn value_of(register: Register, registers: &Registers, thread_pointer: u64) -> Option<u64> {
    let index = match register.full_register() {
        Register::FS => return Some(thread_pointer),
        Register::CS | Register::DS | Register::ES | Register::SS => return Some(0),
        Register::RAX => libc::REG_RAX,
        Register::RBX => libc::REG_RBX,
        Register::RCX => libc::REG_RCX,
        Register::RDX => libc::REG_RDX,
        Register::RSI => libc::REG_RSI,
        Register::RDI => libc::REG_RDI,
        Register::RBP => libc::REG_RBP,
        Register::RSP => libc::REG_RSP,
        Register::R8 => libc::REG_R8,
        Register::R9 => libc::REG_R9,
        Register::R10 => libc::REG_R10,
        Register::R11 => libc::REG_R11,
        Register::R12 => libc::REG_R12,
        Register::R13 => libc::REG_R13,
        Register::R14 => libc::REG_R14,
        Register::R15 => libc::REG_R15,
        _ => return None,
    };
    Some(registers[index as usize] as u64)
}
