// Clients that others wrote for Node: each sends one POST to a URL, by its own rules.
//
// It lies in a folder with its node_modules: node clients.mjs CLIENT URL [KEY]

const [client, url, key] = process.argv.slice(2)
const headers = key ? { 'Idempotency-Key': key } : {}
const json = { amount: 50 }
const TRANSIENT = [409, 425, 429, 500, 502, 503, 504]
const payments = `${url}/payments`

async function withAxiosRetry(options) {
  const { default: axios } = await import('axios')
  const { default: module } = await import('axios-retry')
  const axiosRetry = module.default ?? module
  const instance = axios.create()
  axiosRetry(instance, options)
  await instance.post(payments, json, { headers })
}

const CLIENTS = {
  'stripe (Node)': async () => {
    const { default: Stripe } = await import('stripe')
    const { protocol, hostname: host, port } = new URL(url)
    const stripe = new Stripe('sk_test_1', { protocol: protocol.slice(0, -1), host, port })
    const options = key ? { idempotencyKey: key } : {}
    await stripe.paymentIntents.create({ amount: 50, currency: 'eur' }, options)
  },
  'fetch (Node)': async () => {
    const answer = await fetch(payments, { method: 'POST', headers })
    if (!answer.ok) throw new Error(answer.status)
  },
  axios: async () => {
    const { default: axios } = await import('axios')
    await axios.post(payments, json, { headers })
  },
  'axios-retry': () => withAxiosRetry({}),
  'axios-retry, set up': () =>
    withAxiosRetry({
      retryCondition: (error) => !error.response || TRANSIENT.includes(error.response.status),
    }),
  got: async () => {
    const { default: got } = await import('got')
    await got.post(payments, { json, headers })
  },
  'got, set up': async () => {
    const { default: got } = await import('got')
    const retry = { methods: ['POST'], statusCodes: TRANSIENT }
    await got.post(payments, { json, headers, retry })
  },
  ky: async () => {
    const { default: ky } = await import('ky')
    await ky.post(payments, { json, headers })
  },
  'ky, set up': async () => {
    const { default: ky } = await import('ky')
    const retry = { methods: ['post'], statusCodes: TRANSIENT, afterStatusCodes: TRANSIENT }
    await ky.post(payments, { json, headers, retry })
  },
}

await CLIENTS[client]()
