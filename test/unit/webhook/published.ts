/** The vectors that the senders publish, and values made as they document it. */

/** `at` is null if no time is signed. */
export interface Vector {
  readonly secret: string;
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly at: number | null;
}

/** From the tests of Stripe's libraries, with its indentation and its final newline. */
const STRIPE_BODY = `${JSON.stringify(
  JSON.parse(
    '{"id":"evt_123","object":"event","account":"acct_123","api_version":"2017-05-25","created":1533204620,"data":{"object":{"id":"cus_123","object":"customer","created":123456789,"email":"test@stripe.com","livemode":false,"metadata":{}}},"livemode":false,"pending_webhooks":1,"request":{"id":"req_123","idempotency_key":"idempotency-key-123"},"type":"customer.created"}',
  ),
  null,
  2,
)}\n`;
export const STRIPE_V1 = '2220f87ef101a04665f11cdf770523143f875572008577fa0f20882ddb9cc3c7';
export const STRIPE_V0 = '63f3a72374a733066c4be69ed7f8e5ac85c22c9f0a6a612ab9a025a9e4ee7eef';

export const PUBLISHED: Readonly<Record<string, Vector>> = {
  /** The same vector is in each of the specification's reference libraries. */
  standard: {
    secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    body: '{"test": 2432232314}',
    headers: {
      'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
      'webhook-timestamp': '1614265330',
      'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    },
    at: 1_614_265_330,
  },
  /** docs.github.com, "Validating webhook deliveries". */
  github: {
    secret: "It's a Secret to Everybody",
    body: 'Hello, World!',
    headers: {
      'x-hub-signature-256':
        'sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17',
    },
    at: null,
  },
  /**
   * The tests of stripe/stripe-dotnet and stripe/stripe-python. The manual's example has no secret.
   */
  stripe: {
    secret: 'webhook_secret',
    body: STRIPE_BODY,
    headers: { 'stripe-signature': `t=1533204620,v1=${STRIPE_V1}` },
    at: 1_533_204_620,
  },
  /** docs.slack.dev, "Verifying requests from Slack". */
  slack: {
    secret: '8f742231b10e8888abcd99yyyzzz85a5',
    body: 'token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c',
    headers: {
      'x-slack-request-timestamp': '1531420618',
      'x-slack-signature': 'v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503',
    },
    at: 1_531_420_618,
  },
  /** support.atlassian.com, "Manage webhooks" of Bitbucket Cloud, "Secure webhooks". */
  bitbucket: {
    secret: "It's a Secret to Everybody",
    body: 'Hello World!',
    headers: {
      'x-hub-signature': 'sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9',
    },
    at: null,
  },
  /**
   * developer.zendesk.com, "Verifying": the secret of test requests and the time of the example.
   * The signature is the value of `openssl dgst -sha256 -hmac -binary` in Base64.
   */
  zendesk: {
    secret: 'dGhpc19zZWNyZXRfaXNfZm9yX3Rlc3Rpbmdfb25seQ==',
    body: '{"event":"ticket.updated","id":123}',
    headers: {
      'x-zendesk-webhook-signature-timestamp': '2021-03-25T05:09:27Z',
      'x-zendesk-webhook-signature': 'S/RDdU2ERmj7LHDDoWJ2onPYH+t7/f2+LTM4dL7UiLM=',
    },
    at: Date.UTC(2021, 2, 25, 5, 9, 27) / 1000,
  },
  /**
   * docs.gitea.com, "Webhooks": secret and reference of the example. The signature is the value of
   * its `hash_hmac('sha256', $payload, $secret_key, false)` in PHP 8.2.
   */
  gitea: {
    secret: '3gEsCfjlV2ugRwgpU#w1*WaW*wa4NXgGmpCfkbG3',
    body: '{"ref":"refs/heads/develop"}',
    headers: {
      'x-gitea-signature': '9c2be4f47012ba09d6202c2e943973128f346dd7d33d20adeef6c083d9d69db6',
    },
    at: null,
  },
  /** Sentry publishes no vector: the value of `SentryApp.build_signature` of its server. */
  sentry: {
    secret: 'fixed-client-secret',
    body: '{"action":"created","data":{"issue":{"id":"1"}}}',
    headers: {
      'sentry-hook-signature': '1e0b49ef5b7e0d9b7f82c7371c4dfcc59b567843d0b92d5638420fa2b82393d4',
    },
    at: null,
  },
  /**
   * Notion publishes no vector: token and body of its SDK's test, with the value of `openssl dgst
   * -sha256 -hmac`.
   */
  notion: {
    secret: 'fixed-verification-token',
    body: '{"id":"fixed-evt","type":"page.created"}',
    headers: {
      'x-notion-signature':
        'sha256=e51fc361bd9b019cc34c59929547007291a6dd982179d36bb5d6d9e7e12cbac2',
    },
    at: null,
  },
};
