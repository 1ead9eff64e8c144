//! What the arena asks of the operating system. Only Linux is asked for huge pages, for a scheduling class and for memory back. Elsewhere,
//! and with `--cfg portable`, the arena works without.

/// No system has smaller pages.
const SMALLEST_PAGE: usize = 4 << 10;

/// Bytes of a page of the system, for instance 4 KiB, 16 KiB or 64 KiB.
pub fn page() -> usize {
    // SAFETY: no precondition.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).map_or(SMALLEST_PAGE, |bytes| bytes.max(SMALLEST_PAGE))
}

#[cfg(all(target_os = "linux", not(portable)))]
mod requests {
    /// Asks that this thread never preempts another. If the system refuses, the thread stays as it was.
    pub fn yield_to_others() {
        // Zeros are the only parameters that the class takes.
        // SAFETY: concerns this thread only. As a system call, because musl's function does nothing.
        unsafe {
            let parameters: libc::sched_param = std::mem::zeroed();
            libc::syscall(
                libc::SYS_sched_setscheduler,
                0,
                libc::SCHED_BATCH,
                &raw const parameters,
            );
        }
    }

    /// Lets this thread run wherever the process may. It begins bound as the thread that begins it, which may be a bound scheduler, and then
    /// it would share that scheduler's processor, and touch memory of its node only. If the system refuses, the thread stays as it was.
    pub fn run_anywhere() {
        // SAFETY: the sets are as large as told. It concerns this thread only. The process's first thread, which no VM binds, has its number.
        unsafe {
            let mut processors: libc::cpu_set_t = std::mem::zeroed();
            let bytes = size_of_val(&processors);
            if libc::sched_getaffinity(libc::getpid(), bytes, &raw mut processors) == 0 {
                libc::sched_setaffinity(0, bytes, &raw const processors);
            }
        }
    }

    /// The node of the processors that this thread runs on, 0 if the system does not tell.
    pub fn node() -> u32 {
        let mut node = 0;
        // SAFETY: the system writes the number.
        unsafe { libc::syscall(libc::SYS_getcpu, 0usize, &raw mut node, 0usize) };
        node
    }

    /// Asks that what this thread touches first comes from this node, as long as that has memory. If the system refuses, the thread stays as
    /// it was.
    pub fn prefer_node(node: u32) {
        const PREFERRED: usize = 1;
        let mut nodes = [0u64; 16];
        let (word, bit) = (node as usize / 64, node % 64);
        let Some(word) = nodes.get_mut(word) else { return };
        *word = 1 << bit;
        // SAFETY: concerns this thread only. The system reads as many bits as told, less one.
        unsafe {
            libc::syscall(
                libc::SYS_set_mempolicy,
                PREFERRED,
                nodes.as_ptr(),
                8 * size_of_val(&nodes),
            )
        };
    }

    /// Asks for huge pages where no memory was touched yet. If the system has none of this size, nothing happens.
    ///
    /// # Safety
    /// The caller alone has the memory, which begins and ends with a page of the system.
    pub unsafe fn make_huge(address: *mut u8, bytes: usize) {
        // SAFETY: the range is the caller's. The advice changes no contents.
        unsafe { libc::madvise(address.cast(), bytes, libc::MADV_HUGEPAGE) };
    }

    /// Asks for no huge pages.
    ///
    /// # Safety
    /// The range consists of whole pages of the system, which are mapped.
    pub unsafe fn keep_small(address: *mut u8, bytes: usize) {
        // SAFETY: the advice changes no contents.
        unsafe { libc::madvise(address.cast(), bytes, libc::MADV_NOHUGEPAGE) };
    }

    /// Gives memory back. It is zero when it is touched again. True if the system has done so, which takes time.
    ///
    /// # Safety
    /// As for [`make_huge`], and nobody needs the contents.
    pub unsafe fn give_back(address: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { libc::madvise(address.cast(), bytes, libc::MADV_DONTNEED) == 0 }
    }
}

#[cfg(not(all(target_os = "linux", not(portable))))]
mod requests {
    /// Leaves the thread as it is.
    pub fn yield_to_others() {}

    /// Leaves the thread where it is.
    pub fn run_anywhere() {}

    /// Tells of no nodes.
    pub fn node() -> u32 {
        0
    }

    /// Leaves the choice to the system.
    pub fn prefer_node(_: u32) {}

    /// Leaves the choice of pages to the system.
    ///
    /// # Safety
    /// None.
    pub unsafe fn make_huge(_: *mut u8, _: usize) {}

    /// Leaves the choice of pages to the system.
    ///
    /// # Safety
    /// None.
    pub unsafe fn keep_small(_: *mut u8, _: usize) {}

    /// Leaves the memory as it is, until its address space is given back.
    ///
    /// # Safety
    /// None.
    pub unsafe fn give_back(_: *mut u8, _: usize) -> bool {
        false
    }
}

pub use requests::{give_back, keep_small, make_huge, node, prefer_node, run_anywhere, yield_to_others};
