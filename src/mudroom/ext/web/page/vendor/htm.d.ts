// As far as the page uses it.
declare const htm: any;
export default htm;
