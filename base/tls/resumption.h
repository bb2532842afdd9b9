// Resumption of TLS 1.3 sessions: a client that connects again proves with a secret of its last
// connection that it is the same one. That replaces the check of both certificates, which is most
// of the work of a handshake. The keys of each connection are new.
#ifndef COHORT_BASE_TLS_RESUMPTION_H_
#define COHORT_BASE_TLS_RESUMPTION_H_

#include <openssl/ssl.h>

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "base/threads/mutex.h"

namespace cohort {

// A server forgets the session of a client after this time, or if kMaxSessions newer ones came.
inline constexpr long kSessionSeconds = 300;
inline constexpr long kMaxSessions = 1024;

// Lets a server resume sessions. It keeps them in memory, and they end with `context`.
void ResumeSessionsOfClients(SSL_CTX* context);

// The last session of a client with each host; ends with its context. Thread-safe.
class ClientSessions {
 public:
  // Makes connections of `context` resume sessions.
  static void Enable(SSL_CTX* context);
  // Null: the context resumes none.
  static ClientSessions* Of(const SSL_CTX* context);

  // Lets a new connection resume the session with `*host`, if there is one, and keeps its own one.
  // `*host` outlives the connection.
  void Resume(const std::string* host, SSL* connection);

 private:
  struct Free {
    void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
  };
  static constexpr size_t kMaxHosts = 64;

  // OpenSSL calls it with a new session. Returns 1 if it keeps the session.
  static int OnSession(SSL* connection, SSL_SESSION* session);

  Mutex mutex_;
  std::map<std::string, std::unique_ptr<SSL_SESSION, Free>> by_host_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort

#endif  // COHORT_BASE_TLS_RESUMPTION_H_
