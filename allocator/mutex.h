// Mutex: absl::Mutex with its thread-safety annotations, in a form that ThreadSanitizer understands.
//
// A packaged abseil is not built with ThreadSanitizer, which therefore does not see its mutex. In a build with
// ThreadSanitizer each lock and unlock is reported to it. In other builds this is absl::Mutex.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace spillway {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
#ifdef __SANITIZE_THREAD__
    __tsan_mutex_pre_lock(this, 0);
    mutex_.Lock();
    __tsan_mutex_post_lock(this, 0, 0);
#else
    mutex_.Lock();
#endif
  }

  void unlock() ABSL_UNLOCK_FUNCTION() {
#ifdef __SANITIZE_THREAD__
    __tsan_mutex_pre_unlock(this, 0);
    mutex_.Unlock();
    __tsan_mutex_post_unlock(this, 0);
#else
    mutex_.Unlock();
#endif
  }

 private:
  absl::Mutex mutex_;
};

// Holds a mutex as long as it lives.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace spillway
