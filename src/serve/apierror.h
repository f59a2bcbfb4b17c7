/* apierror: what is wrong with a request, as the error object of its answer says it; and the table
 * of HTTP's statuses. */
#ifndef PESC_SERVE_APIERROR_H
#define PESC_SERVE_APIERROR_H

#include "base/status.h"
#include "base/str.h"

/* The statuses of answers, and 499, which is logged only: the client has left. */
enum { N_STATUSES = 19 };
typedef struct http_status {
    int code;
    const char *reason, *type; /* type: of the error object */
} http_status;
extern const http_status http_statuses[N_STATUSES];
const http_status *http_status_of(int code); /* which must be in the table */

typedef struct api_error {
    int status;       /* of HTTP; 0: nothing is wrong */
    const char *type; /* "invalid_request_error", a literal */
    const char *code; /* a literal; NULL: null */
    char param[64];   /* the field; "": null */
    char message[400];
    int retry_after; /* seconds; 0: no such header */
} api_error;

/* Fills in the error and returns false. Control characters and invalid UTF-8 in the arguments are
 * made visible. param NULL: none. */
bool api_refuse(api_error *e, int status, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The server ends: 503. Returns false. */
bool api_shutting_down(api_error *e);
/* The error of a status that a call of the library returned, with its sentence. */
bool api_failed(api_error *e, pesc_status s);
/* Appends {"error": {...}}. */
void api_error_json(const api_error *e, str *out);
/* The same as Anthropic's interface has it. id: of the request. */
void api_error_messages(const api_error *e, const char *id, str *out);
/* The same as an event of /v1/responses. */
void api_error_event(const api_error *e, str *out);

#endif
