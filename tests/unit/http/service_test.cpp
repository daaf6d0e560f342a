// SPDX-License-Identifier: Apache-2.0
// What the head of a request alone decides; contract.py tries the rest over sockets.
#include "http/service.h"

#include "catch.h"

using namespace cua_server;

namespace {

struct Worker {
  Library library{CUA_FAKE_LIBRARY};
  scheduling::Engine engine{library, {}};
  scheduling::Engine *engines[1] = {&engine};
  scheduling::Scheduler scheduler{engines, {}};
  http::Service service{{}};
  Worker() { service.is_ready(engines, scheduler); }
};

unsigned status(const http::Service &service, const char *method, const char *target) {
  const auto reply = service.route({method, target});
  return reply ? reply->status : 0;
}

}  // namespace

TEST_CASE("routes") {
  const Worker worker;
  const http::Service &service = worker.service;
  for (const char *target :
       {"/v1/systemone", "/v1/systemone?", "/v1/systemone?x=/health", "http://host/v1/systemone",
        "https://host:1/v1/systemone?x", "HTTP://host/v1/systemone", "Https://host/v1/systemone"}) {
    CAPTURE(target);
    CHECK(status(service, "POST", target) == 0);  // the body decides
    CHECK(status(service, "GET", target) == 405);
    CHECK(service.route({"GET", target})->allow == "POST");
  }
  for (const char *target : {"/health", "/health?a=b", "http://host/health", "/livez", "/readyz"}) {
    CAPTURE(target);
    CHECK(status(service, "GET", target) == 200);
    CHECK(status(service, "HEAD", target) == 405);
    CHECK(status(service, "post", target) == 405);
    CHECK(service.route({"POST", target})->allow == "GET");
  }
  for (const char *target : {"/", "/?a=b", "http://host/", "http://host"}) {
    CAPTURE(target);
    CHECK(status(service, "GET", target) == 200);
    CHECK(status(service, "HEAD", target) == 200);
    for (const char *method : {"POST", "get", "OPTIONS", "GET, HEAD"}) {
      CHECK(status(service, method, target) == 405);
      CHECK(service.route({method, target})->allow == "GET, HEAD");
    }
  }
  for (const char *target :
       {"", "*", "health", "/health/", "/healthy", "/v1/systemone/", "/V1/systemone",
        "/v1%2Fsystemone", "//v1/systemone", "//", "/index.html", "ftp://h/health", "?/health"}) {
    CAPTURE(target);
    CHECK(status(service, "GET", target) == 404);
    CHECK(status(service, "POST", target) == 404);
  }
}

TEST_CASE("without the page") {
  http::ServiceOptions options;
  options.has_page = false;
  const http::Service service(options);
  for (const char *target : {"/", "http://host", "http://"}) {
    CHECK(status(service, "GET", target) == 404);
    CHECK(status(service, "HEAD", target) == 404);
    CHECK(status(service, "POST", target) == 404);
  }
}

TEST_CASE("while the model loads") {
  http::Service service({});
  CHECK(status(service, "GET", "/") == 200);
  CHECK(service.route({"GET", "/health"})->status == 503);
  CHECK(service.route({"GET", "/health"})->body == "{\"status\":\"loading\"}");
  CHECK(service.route({"GET", "/readyz"})->status == 503);
  CHECK(service.route({"GET", "/livez"})->status == 200);
  const auto busy = service.route({"POST", "/v1/systemone"});
  REQUIRE(busy);
  CHECK(busy->status == 503);
  CHECK(busy->headers.find("Retry-After: ") != std::string::npos);
  CHECK(service.route({"GET", "/v1/systemone"})->status == 405);
}

TEST_CASE("health while draining") {
  Worker worker;
  CHECK(worker.service.route({"GET", "/health"})->body ==
        "{\"status\":\"ready\",\"model\":\"" + worker.service.model_id() + "\"}");
  worker.service.start_draining();
  CHECK(worker.service.route({"GET", "/health"})->status == 503);
  CHECK(worker.service.route({"GET", "/health"})->body == "{\"status\":\"draining\"}");
  CHECK(worker.service.route({"GET", "/readyz"})->status == 503);
  CHECK(worker.service.route({"GET", "/livez"})->status == 200);
}
