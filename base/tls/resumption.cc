#include "base/tls/resumption.h"

namespace cohort {
namespace {

void DeleteSessions(void*, void* sessions, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<ClientSessions*>(sessions);
}

int SessionsIndex() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, DeleteSessions);
  return index;
}

// A connection's host, a const std::string*.
int HostIndex() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

}  // namespace

void ResumeSessionsOfClients(SSL_CTX* context) {
  // Without tickets that hold the state, a session needs no second parse of its certificate.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_SERVER);
  SSL_CTX_sess_set_cache_size(context, kMaxSessions);
  SSL_CTX_set_timeout(context, kSessionSeconds);
  SSL_CTX_set_num_tickets(context, 1);
}

void ClientSessions::Enable(SSL_CTX* context) {
  SSL_CTX_set_ex_data(context, SessionsIndex(), new ClientSessions);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(context, OnSession);
}

ClientSessions* ClientSessions::Of(const SSL_CTX* context) {
  return static_cast<ClientSessions*>(SSL_CTX_get_ex_data(context, SessionsIndex()));
}

void ClientSessions::Resume(const std::string* host, SSL* connection) {
  SSL_set_ex_data(connection, HostIndex(), const_cast<std::string*>(host));
  MutexLock lock(&mutex_);
  const auto found = by_host_.find(*host);
  if (found == by_host_.end()) return;
  // OpenSSL resumes each session of TLS 1.3 once, to hide that two connections are of one client.
  SSL_SESSION* const copy = SSL_SESSION_dup(found->second.get());
  if (copy == nullptr) return;
  SSL_set_session(connection, copy);
  SSL_SESSION_free(copy);
}

int ClientSessions::OnSession(SSL* connection, SSL_SESSION* session) {
  const auto* const host =
      static_cast<const std::string*>(SSL_get_ex_data(connection, HostIndex()));
  // Resumed connections of TLS 1.2 have no forward secrecy.
  if (host == nullptr || SSL_version(connection) < TLS1_3_VERSION) return 0;
  std::unique_ptr<SSL_SESSION, Free> kept(session);
  ClientSessions& sessions = *Of(SSL_get_SSL_CTX(connection));
  MutexLock lock(&sessions.mutex_);
  auto& by_host = sessions.by_host_;
  if (by_host.size() >= kMaxHosts && by_host.count(*host) == 0) by_host.erase(by_host.begin());
  by_host[*host].swap(kept);
  return 1;
}

}  // namespace cohort
